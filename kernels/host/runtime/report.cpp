#include "report.h"

#include <dlfcn.h>

#include <cstdarg>
#include <cstdio>

namespace sim {

std::string where(uintptr_t pc) {
  Dl_info library;
  // A return address may already belong to the next line; the call ends one byte before it.
  if (pc == 0 || !dladdr(reinterpret_cast<void*>(pc - 1), &library)) return "an unknown place";
  return format("@{%zx}", size_t(pc - 1 - reinterpret_cast<uintptr_t>(library.dli_fbase)));
}

std::string format(const char* pattern, ...) {
  va_list arguments, again;
  va_start(arguments, pattern);
  va_copy(again, arguments);
  std::string text(size_t(vsnprintf(nullptr, 0, pattern, arguments)), '\0');
  vsnprintf(text.data(), text.size() + 1, pattern, again);
  va_end(again);
  va_end(arguments);
  return text;
}

std::string quoted(const std::string& text) {
  std::string json = "\"";
  for (const char letter : text) {
    if (letter == '"' || letter == '\\') json += '\\';
    if (static_cast<unsigned char>(letter) < 0x20)
      json += format("\\u%04x", letter);
    else
      json += letter;
  }
  return json + '"';
}

void Report::add(const char* kind, const std::string& text, const std::string& key) {
  if (full()) return;
  for (const Finding& finding : findings_)
    if (finding.kind == kind && finding.key == key) return;
  findings_.push_back({kind, text, key});
}

std::string Report::json() const {
  std::string json = "[";
  for (const Finding& finding : findings_) {
    if (json.size() > 1) json += ',';
    json += "{\"kind\":" + quoted(finding.kind) + ",\"text\":" + quoted(finding.text) + '}';
  }
  return json + ']';
}

}  // namespace sim
