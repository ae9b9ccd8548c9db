"""Rule packs: found by name without running their code, and never mistaken for another's rules."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import yaml

import dspark
from dspark.cli import main
from dspark.diagnostics import Report
from dspark.document import Document
from dspark.prefix import prefixed
from dspark.table import read_table
from tests.dspark.test_schemas import problems
from tests.support.configs import write_config

TEMPLATE = Path(__file__).parents[2] / "examples" / "rule-pack"
APPROVED = {
    "architectures": ["Qwen3DSparkModel"],
    "model_type": "qwen3",
    "block_size": 7,
    "markov_rank": 256,
}


def install(
    site: Path, name: str, package: str, *, distribution: str = "", rules: str | None = None
) -> Path:
    """A package with an entry point, as pip would leave it in `site`; returns its folder."""
    distribution = distribution or f"{name}-rules"
    info = site / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[dspark.rules]\n{name} = {package}\n")
    folder = site.joinpath(*package.split("."))
    folder.mkdir(parents=True, exist_ok=True)
    for depth in range(1, len(package.split(".")) + 1):
        code = site.joinpath(*package.split(".")[:depth], "__init__.py")
        code.write_text("raise AssertionError('a pack was imported')\n")
    if rules is not None:
        (folder / "drafts.yaml").write_text(rules, encoding="utf-8")
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))
    return site


@pytest.fixture
def rules() -> str:
    return (TEMPLATE / "src/acme_draft_rules/drafts.yaml").read_text(encoding="utf-8")


def test_a_pack_decides_under_its_own_name_and_runs_no_code(site: Path, rules: str) -> None:
    install(site, "acme", "acme_one", rules=rules)

    table = dspark.compile_table("pack:acme")

    decision = table.route(APPROVED)
    assert ("acme:L001", "approved-dspark", "qwen3-dspark") == (
        decision.rule_id,
        decision.name,
        decision.lane,
    )
    assert "acme:R000" == table.route({}).rule_id
    assert str(site / "acme_one/drafts.yaml") == table.file
    assert "acme_one" not in sys.modules


def test_a_pack_may_lie_inside_a_package(site: Path, rules: str) -> None:
    install(site, "acme.inner", "acme_two.rules.drafts", rules=rules)

    table = dspark.compile_table("pack:acme.inner")

    assert "acme.inner:L001" == table.route(APPROVED).rule_id


def test_every_id_of_a_pack_is_prefixed_and_no_other() -> None:
    text = b"""
table: t
facts: [architecture]
default: R000
rules:
  R001:
    name: one
    when: {architecture: A}
    before: [R002]
    refuse: "one"
    why: w
    tests: [{hit: {architectures: [A]}, says: one}, {miss: {architectures: [A, B]}, is: E103}]
  R002:
    name: two
    when: {architecture: PRESENT}
    refuse: "second"
    why: w
    tests: [{miss: {}, is: R000}]
  R000: {name: none, refuse: "nothing", why: w, tests: [{hit: {}, says: nothing}]}
retired: {R003: {name: three, in: "1", use: R001}, R004: {name: four, in: "1"}}
"""
    source = prefixed(read_table(Document(text, "t.yaml", Report())), "acme")

    assert ["acme:R001", "acme:R002", "acme:R000"] == list(source.rules)
    one, two, _ = source.rules.values()
    assert {"acme:R002"} == one.before
    assert ["", "E103", "acme:R000"] == [case.expected for case in (*one.cases, *two.cases)]
    assert {"acme:R001", "acme:R002"} == {case.rule_id for case in (*one.cases, *two.cases)}
    assert "acme:R000" == source.default
    assert [("acme:R003", "acme:R001"), ("acme:R004", "")] == [
        (tomb.id, tomb.use) for tomb in source.retired.values()
    ]
    assert list(source.retired) == [tomb.id for tomb in source.retired.values()]


def test_the_commands_take_a_pack_wherever_they_take_a_file(
    site: Path, rules: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(site, "acme", "acme_three", rules=rules)
    draft = write_config(tmp_path / "draft", APPROVED)
    target = write_config(tmp_path / "target", {"architectures": ["FooModel"]})
    outputs = {}
    for words in (
        ["route", "--rules", "pack:acme", str(draft)],
        ["explain", "--rules", "pack:acme", "acme:L001"],
        ["rules", "--rules", "pack:acme"],
        ["graph", "--rules", "pack:acme"],
        ["graph", "--rules", "pack:acme", "--format", "dot"],
        ["check", "pack:acme"],
        ["diff", "pack:acme", str(TEMPLATE / "src/acme_draft_rules/drafts.yaml")],
        ["plan", "--rules", "pack:acme", "--target", str(target), str(target)],
    ):
        code = main(words)
        outputs[" ".join(words[:1] + words[-1:])] = (code, capsys.readouterr().out)

    by_verb = {words.split()[0]: found for words, found in outputs.items()}
    assert (0, f"{draft}: lane qwen3-dspark  [acme:L001 approved-dspark]\n") == by_verb["route"]
    assert 0 == by_verb["explain"][0]
    assert "acme:L001 approved-dspark" in by_verb["explain"][1]
    assert "acme:R001  dflash-not-approved" in by_verb["rules"][1]
    assert "acme:L001  lane qwen3-dspark" in outputs["graph pack:acme"][1]
    assert 'acme_L001 [shape=oval, label="acme:L001 approved-dspark"];' in outputs["graph dot"][1]
    assert 0 == by_verb["check"][0], by_verb["check"][1]
    assert "mutation  100.0 %" in by_verb["check"][1]
    # Under another ID a rule is another rule, to whoever greps a log for it.
    assert 1 == by_verb["diff"][0]
    assert "acme:L001 approved-dspark (lane qwen3-dspark) -> L001" in by_verb["diff"][1]
    assert 3 == by_verb["plan"][0]
    assert "[acme:R000 not-measured]" in by_verb["plan"][1]


def test_an_unreadable_rule_of_a_pack_has_the_exit_code_of_one(
    site: Path, rules: str, tmp_path: Path
) -> None:
    text = rules.replace("  R000:", "  E101:").replace("default: R000", "default: E101")
    install(site, "acme", "acme_four", rules=text.replace("is: R000", "is: E101"))
    draft = write_config(tmp_path / "draft", {"architectures": ["FooModel"]})

    assert 4 == main(["route", "--quiet", "--rules", "pack:acme", str(draft)])


def test_an_unknown_pack_is_told_with_those_there_are(
    site: Path, rules: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert 2 == main(["rules", "--rules", "pack:acme"])
    assert (
        "dspark: no installed package brings a rule pack `acme`; no rule pack is installed\n"
        == capsys.readouterr().err
    )

    install(site, "acme", "acme_five", rules=rules)
    install(site, "zebra", "zebra_five", rules=rules)
    assert 2 == main(["rules", "--rules", "pack:acmee"])
    assert (
        "dspark: no installed package brings a rule pack `acmee`; did you mean `acme`? "
        "installed rule packs: `acme`, `zebra`\n" == capsys.readouterr().err
    )


def test_two_packages_may_not_bring_one_pack(site: Path, rules: str) -> None:
    install(site, "acme", "acme_six", rules=rules)
    install(site, "acme", "acme_seven", distribution="other-rules", rules=rules)

    with pytest.raises(
        dspark.PackError,
        match=r"packages `acme-rules 1\.0` and `other-rules 1\.0` both bring a rule pack `acme`",
    ):
        dspark.compile_table("pack:acme")


@pytest.mark.parametrize("package", ["acme_nine.no.such", "acme:attribute", "os", ".", "acme_none"])
def test_a_pack_without_its_package_or_table_is_broken(site: Path, package: str) -> None:
    install(site, "acme", "acme_eight", rules=None)
    entry = site / "acme_rules-1.0.dist-info/entry_points.txt"
    entry.write_text(f"[dspark.rules]\nacme = {package}\n")

    with pytest.raises(dspark.PackError) as caught:
        dspark.compile_table("pack:acme")

    assert "the rule pack `acme` of the package `acme-rules 1.0` is broken: there is no" in str(
        caught.value
    )
    assert f"package `{package}`" in str(caught.value)


def test_a_pack_that_names_what_was_never_found_is_broken(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(site, "acme", "acme_half")
    monkeypatch.setitem(sys.modules, "acme_half", ModuleType("acme_half"))

    with pytest.raises(dspark.PackError, match="is broken: there is no package `acme_half`"):
        dspark.compile_table("pack:acme")


def test_a_pack_without_a_table_names_the_file(site: Path) -> None:
    folder = install(site, "acme", "acme_ten", rules=None)

    with pytest.raises(dspark.PackError, match=re.escape(f"no file `{folder / 'drafts.yaml'}`")):
        dspark.compile_table("pack:acme")


def test_a_pack_with_a_bad_table_names_package_and_file(
    site: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = install(site, "acme", "acme_eleven", rules="table: [\n")

    assert 5 == main(["rules", "--rules", "pack:acme"])

    output = capsys.readouterr().out
    assert f"{folder / 'drafts.yaml'}:" in output
    assert "1 error in the rule pack `acme` of the package `acme-rules 1.0`;" in output
    with pytest.raises(dspark.TableError, match="in the rule pack `acme` of the package"):
        dspark.compile_table("pack:acme")


def test_a_pack_name_must_read_well_before_an_id(site: Path, rules: str) -> None:
    install(site, "Acme Rules", "acme_twelve", distribution="acme-rules", rules=rules)

    with pytest.raises(dspark.PackError, match="has a bad name; use lower-case words"):
        dspark.compile_table("pack:Acme Rules")


def test_a_file_may_be_called_like_a_pack(
    tmp_path: Path, rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("pack:acme").write_text(rules, encoding="utf-8")

    assert "L001" == dspark.compile_table("./pack:acme").route(APPROVED).rule_id
    assert "L001" == dspark.compile_table(Path("pack:acme")).route(APPROVED).rule_id


# ------------------------------------------------------------------------- the template


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    venv = str(Path(sys.executable).parent)
    search = f"{venv}{os.pathsep}{os.environ['PATH']}"
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env={**os.environ, "PATH": search, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the template installed in it, from a copy, without a network."""
    place = tmp_path_factory.mktemp("template")
    shutil.copytree(TEMPLATE, place / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    done = run(
        *pip, "--no-index", "--target", place / "site", place / "source", cwd=place,
        PIP_DISABLE_PIP_VERSION_CHECK="1",
    )  # fmt: skip
    assert 0 == done.returncode, done.stderr
    return place / "site"


def test_the_template_installs_as_a_pack_and_routes(installed: Path, tmp_path: Path) -> None:
    draft = write_config(tmp_path / "draft", APPROVED)
    dspark_route = [sys.executable, "-m", "dspark.route", "--rules", "pack:acme", "--json"]

    done = run(*dspark_route, draft, cwd=tmp_path, PYTHONPATH=str(installed))

    assert 0 == done.returncode, done.stdout + done.stderr
    decision = json.loads(done.stdout)["decision"]
    assert ("acme:L001", "qwen3-dspark") == (decision["rule_id"], decision["lane"])
    assert [] == problems("decision", json.loads(done.stdout))


def test_the_templates_own_test_passes_when_it_is_installed(installed: Path) -> None:
    done = run(
        sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", TEMPLATE / "tests",
        "--rootdir", TEMPLATE, "-c", TEMPLATE / "pyproject.toml",
        cwd=TEMPLATE, PYTHONPATH=str(installed), PYTHONDONTWRITEBYTECODE="1",
        PYTEST_DISABLE_PLUGIN_AUTOLOAD="1",
    )  # fmt: skip

    assert 0 == done.returncode, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = run("git", *identity, *words, cwd=folder, GIT_CONFIG_GLOBAL="/dev/null")
    assert 0 == done.returncode, done.stderr
    return done.stdout.strip()


@pytest.fixture
def repository_of_pack(tmp_path: Path) -> tuple[Path, dict[str, str]]:
    """The template as a git repository, and the environment of its workflow's steps."""
    folder = tmp_path / "repository"
    shutil.copytree(TEMPLATE, folder)
    git(folder, "init", "--quiet", "--initial-branch", "main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "first")
    workflow = yaml.safe_load((folder / ".github/workflows/rules.yml").read_text(encoding="utf-8"))
    return folder, {"RULES": workflow["env"]["RULES"], "BASE": git(folder, "rev-parse", "HEAD")}


def step(folder: Path, name: str) -> str:
    workflow = yaml.safe_load((folder / ".github/workflows/rules.yml").read_text(encoding="utf-8"))
    (found,) = [step for step in workflow["jobs"]["rules"]["steps"] if step.get("name") == name]
    return str(found["run"])


def test_the_workflow_posts_a_config_for_each_changed_decision(
    repository_of_pack: tuple[Path, dict[str, str]], tmp_path: Path
) -> None:
    folder, environment = repository_of_pack
    file = folder / environment["RULES"]
    text = file.read_text(encoding="utf-8")
    edited = text.replace("architecture: DFlashDraftModel}", "architecture: [DFlashDraftModel, X]}")
    assert text != edited
    file.write_text(edited, encoding="utf-8")
    summary = tmp_path / "summary.md"
    places = {"RUNNER_TEMP": str(tmp_path), "GITHUB_STEP_SUMMARY": str(summary)}

    shown = step(folder, "Show which configs change decision")
    done = run("bash", "-eo", "pipefail", "-c", shown, cwd=folder, **environment, **places)

    assert 0 == done.returncode, done.stderr
    posted = summary.read_text(encoding="utf-8")
    assert posted == (tmp_path / "witnesses.md").read_text(encoding="utf-8")
    assert "    R000 not-measured (refusal) -> R001 dflash-not-approved (refusal)\n" in posted
    assert '        {"architectures": ["X"]' in posted


@pytest.mark.parametrize(
    ("edit", "code", "words"),
    [
        ("", 0, "    no config changes decision"),
        ("rulez: {}\n", 5, "error[D004 unknown-key]"),
    ],
)
def test_the_witnesses_fail_only_where_a_table_does_not_compile(
    repository_of_pack: tuple[Path, dict[str, str]], edit: str, code: int, words: str
) -> None:
    folder, environment = repository_of_pack
    with (folder / environment["RULES"]).open("a", encoding="utf-8") as file:
        file.write(edit)

    done = run(folder / ".github/witnesses", cwd=folder, **environment)

    assert code == done.returncode
    assert words in done.stdout


def test_a_new_rules_file_is_said_to_be_new(
    repository_of_pack: tuple[Path, dict[str, str]],
) -> None:
    folder, environment = repository_of_pack
    environment["RULES"] = "src/other/drafts.yaml"

    done = run(folder / ".github/witnesses", cwd=folder, **environment)

    assert 0 == done.returncode
    assert "`src/other/drafts.yaml` is new" in done.stdout


def test_the_workflow_checks_before_it_shows(repository: Path) -> None:
    assert 'dspark check "$RULES"' == step(
        TEMPLATE, "Prove the table, run its tests, break it to see them fail"
    )
    text = (TEMPLATE / ".github/workflows/rules.yml").read_text(encoding="utf-8")
    # What a pull request says of itself must not reach a shell as code.
    for line in text.splitlines():
        assert "${{" not in line or re.match(r"\s+[A-Z_]+: \$\{\{ [\w.]+ \}\}$", line), line
    assert (repository / ".pre-commit-hooks.yaml").is_file()


def test_the_hook_checks_every_file_that_it_is_given(repository: Path, tmp_path: Path) -> None:
    (hook,) = yaml.safe_load((repository / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert "dspark-check" == hook["id"]
    assert re.search(hook["files"], "src/acme_draft_rules/drafts.yaml")
    assert not re.search(hook["files"], "src/mydrafts.yaml")
    good = TEMPLATE / "src/acme_draft_rules/drafts.yaml"
    bad = tmp_path / "drafts.yaml"
    bad.write_text("table: [\n", encoding="utf-8")
    entry = shlex.split(hook["entry"])

    assert 0 == run(*entry, good, good, cwd=tmp_path).returncode
    done = run(*entry, good, bad, cwd=tmp_path)
    assert 5 == done.returncode
    assert "error[D001 yaml-syntax]" in done.stdout
