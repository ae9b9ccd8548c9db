"""`dspark handoff`: commands that a shell takes, and files that container tools take."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dspark.cli import main
from tests.dspark.test_schemas import problems
from tests.support.handoffs import DEEPSEEK_V4, DSPARK, KIMI_K3, KIMI_TARGET, TARGET, Config, write

OK, USAGE, REFUSED, UNREADABLE = 0, 2, 3, 4


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    # A shell would split the one and expand the other.
    return write(tmp_path / "a draft", DSPARK), write(tmp_path / "$target", TARGET)


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str]) -> Any:
    def say(*arguments: str) -> tuple[int, str]:
        code = main(["handoff", "vllm", *arguments])
        written = capsys.readouterr()
        return code, written.out + written.err

    return say


def words(line: str) -> list[str]:
    """What a shell makes of a line."""
    script = f'set -- {line.strip()}; printf "%s\\0" "$@"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.split("\0")[:-1]


def spec(draft: str) -> dict[str, object]:
    return {"method": "dspark", "model": draft, "num_speculative_tokens": 5}


def test_one_machine_gets_one_line(pair: tuple[str, str], say: Any) -> None:
    draft, target = pair

    code, text = say(draft, "--target", target)

    assert OK == code
    *command, config = words(text)
    assert ["vllm", "serve", target, "--speculative-config"] == command
    assert spec(draft) == json.loads(config)


def test_several_gpus_share_the_target(pair: tuple[str, str], say: Any) -> None:
    _, text = say(pair[0], "--target", pair[1], "--gpus", "4")

    assert " --tensor-parallel-size 4 --speculative-config " in text


def test_several_machines_get_a_line_each(pair: tuple[str, str], say: Any) -> None:
    place = ("--gpus", "4", "--nodes", "2", "--master-addr", "10.0.0.1")

    code, text = say(pair[0], "--target", pair[1], *place)

    first, head, second, other = text.splitlines()
    shared = ["--nnodes", "2", "--node-rank"]
    reached = ["--master-addr", "10.0.0.1", "--master-port", "29501"]
    assert (OK, "# on node 0", "# on node 1") == (code, first, second)
    assert [*shared, "0", *reached] == words(head)[-8:]
    assert [*shared, "1", *reached, "--headless"] == words(other)[-9:]
    assert words(head)[:-8] == words(other)[:-9]
    assert " --tensor-parallel-size 8 " in head


def test_a_ray_cluster_is_joined_before_one_line_serves(pair: tuple[str, str], say: Any) -> None:
    place = ("--nodes", "2", "--master-addr", "10.0.0.1", "--backend", "ray")

    _, text = say(pair[0], "--target", pair[1], *place)

    lines = text.splitlines()
    assert ["# on node 0", "# on node 1", "# on node 0"] == lines[::2]
    assert ["ray start --head --port=6379", "ray start --address=10.0.0.1:6379"] == lines[1:4:2]
    assert " --tensor-parallel-size 2 --distributed-executor-backend ray " in lines[5]
    assert "--nnodes" not in lines[5]


def test_a_draft_inside_its_target_needs_no_target(tmp_path: Path, say: Any) -> None:
    _, text = say(write(tmp_path, DEEPSEEK_V4))

    assert " --kv-cache-dtype fp8 --speculative-config " in text
    assert '"model"' not in text


def test_a_number_can_be_given_where_the_config_has_none(tmp_path: Path, say: Any) -> None:
    draft, target = write(tmp_path / "draft", KIMI_K3), write(tmp_path / "target", KIMI_TARGET)

    code, refused = say(draft, "--target", target)
    _, text = say(draft, "--target", target, "--num-speculative-tokens", "6")

    assert REFUSED == code
    assert "[X008 handoff-tokens-unstated]" not in text
    assert refused.splitlines()[0].endswith("refused  [X008 handoff-tokens-unstated]")
    assert '"num_speculative_tokens": 6' in text


def test_json_is_one_object_with_the_same_words(pair: tuple[str, str], say: Any) -> None:
    place = (pair[0], "--target", pair[1], "--nodes", "2", "--master-addr", "host")
    _, text = say(*place)

    code, printed = say(*place, "--format", "json")

    found = json.loads(printed)
    assert (OK, []) == (code, problems("handoff", found))
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert [words(line) for line in lines] == [each["argv"] for each in found["commands"]]
    assert ("L001", "qwen3-dspark", spec(pair[0])) == (
        found["rule_id"],
        found["lane"],
        found["speculative_config"],
    )


@pytest.mark.parametrize(
    ("draft", "code", "rule_id"),
    [(TARGET, REFUSED, "X001"), (DSPARK | {"architectures": 3}, UNREADABLE, "E102")],
)
def test_a_refusal_says_its_id_and_its_exit_code(
    draft: Config, code: int, rule_id: str, pair: tuple[str, str], tmp_path: Path, say: Any
) -> None:
    refused = write(tmp_path / "other", draft)

    text_code, text = say(refused, "--target", pair[1])
    json_code, printed = say(refused, "--target", pair[1], "--format", "json")

    decision = json.loads(printed)
    assert (code, code) == (text_code, json_code)
    assert f"refused  [{rule_id} " in text
    assert rule_id == decision["decision"]["rule_id"]
    assert [] == problems("decision", decision)


@pytest.mark.parametrize(
    ("more", "says"),
    [
        (("--nodes", "2"), "several nodes need --master-addr HOST"),
        (("--nodes", "2", "--format", "k8s", "--backend", "ray"), "use KubeRay"),
        (("--nodes", "2", "--format", "compose", "--backend", "ray"), "starts no Ray cluster"),
    ],
)
def test_options_that_do_not_go_together(
    more: tuple[str, ...], says: str, pair: tuple[str, str], say: Any
) -> None:
    code, text = say(pair[0], "--target", pair[1], *more)

    assert USAGE == code
    assert says in text


def test_standard_input_is_nothing_to_serve(pair: tuple[str, str], say: Any) -> None:
    code, text = say("-", "--target", pair[1])

    assert (USAGE, True) == (code, "standard input is neither" in text)


@pytest.mark.parametrize("options", [("--gpus", "0"), ("--nodes", "x"), ("--format", "toml")])
def test_options_are_checked(options: tuple[str, str], pair: tuple[str, str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["handoff", "vllm", pair[0], "--target", pair[1], *options])

    assert USAGE == caught.value.code


# ------------------------------------------------------------------------------- containers


def compose(text: str) -> dict[str, Any]:
    services: dict[str, Any] = yaml.safe_load(text)["services"]
    return services


def literal(text: str) -> str:
    """What Compose makes of a text without variables."""
    assert "$" not in text.replace("$$", "")
    return text.replace("$$", "$")


def test_a_compose_file_runs_the_same_words(pair: tuple[str, str], say: Any) -> None:
    place = (pair[0], "--target", pair[1], "--gpus", "2")
    _, line = say(*place)

    _, text = say(*place, "--format", "compose")

    (service,) = compose(text).values()
    assert words(line) == [literal(word) for word in service["entrypoint"]]
    assert "vllm/vllm-openai:v0.33.0" == service["image"]
    assert ["8000:8000"] == service["ports"]
    (gpus,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert {"driver": "nvidia", "count": 2, "capabilities": ["gpu"]} == gpus
    bound = [volume for volume in service["volumes"] if isinstance(volume, dict)]
    assert sorted(pair) == [literal(volume["source"]) for volume in bound]
    assert all(volume["source"] == volume["target"] for volume in bound)
    assert all(volume["read_only"] for volume in bound)


def test_a_compose_file_has_a_profile_for_each_node(pair: tuple[str, str], say: Any) -> None:
    place = ("--nodes", "2", "--master-addr", "host", "--format", "compose")

    _, text = say(pair[0], "--target", pair[1], *place)

    services = compose(text)
    assert [["node-0"], ["node-1"]] == [each["profiles"] for each in services.values()]
    assert {"host"} == {each["network_mode"] for each in services.values()}
    assert ["--headless" in each["entrypoint"] for each in services.values()] == [False, True]


def test_kubernetes_runs_one_node_as_a_deployment(pair: tuple[str, str], say: Any) -> None:
    place = (pair[0], "--target", pair[1], "--gpus", "2")
    _, line = say(*place)

    _, text = say(*place, "--format", "k8s")

    service, deployment = yaml.safe_load_all(text)
    assert ("Service", "Deployment") == (service["kind"], deployment["kind"])
    template = deployment["spec"]["template"]
    (container,) = template["spec"]["containers"]
    assert words(line) == container["command"]
    assert {"nvidia.com/gpu": 2} == container["resources"]["limits"]
    assert "/health" == container["readinessProbe"]["httpGet"]["path"]
    selected = service["spec"]["selector"].items()
    assert selected <= template["metadata"]["labels"].items()
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
    assert mounted.keys() == volumes.keys()
    hosted = {name: v["hostPath"]["path"] for name, v in volumes.items() if "hostPath" in v}
    assert set(pair) == set(hosted.values())
    assert hosted == {name: mounted[name] for name in hosted}


@pytest.mark.parametrize("node", [0, 1])
def test_kubernetes_gives_each_pod_its_rank(node: int, pair: tuple[str, str], say: Any) -> None:
    place = (pair[0], "--target", pair[1], "--gpus", "2", "--nodes", "2")
    _, lines = say(*place, "--master-addr", "llm-0.llm-nodes")

    _, text = say(*place, "--format", "k8s")

    nodes, service, stateful = yaml.safe_load_all(text)
    assert ("StatefulSet", 2) == (stateful["kind"], stateful["spec"]["replicas"])
    assert nodes["metadata"]["name"] == stateful["spec"]["serviceName"]
    assert "None" == nodes["spec"]["clusterIP"]
    # Or none would have a name before it serves, which it cannot before all have met.
    assert nodes["spec"]["publishNotReadyAddresses"] is True
    assert {"statefulset.kubernetes.io/pod-name": "llm-0"} == service["spec"]["selector"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    assert ["sh", "-c"] == container["command"][:2]
    script = container["command"][2].removeprefix("exec ")
    script = f'NODE={node}; set -- {script}; printf "%s\\0" "$@"'
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    wanted = shlex.split(lines.splitlines()[2 * node + 1])
    assert wanted == done.stdout.split("\0")[:-1]


def test_no_object_is_written_as_a_reference_to_another(pair: tuple[str, str], say: Any) -> None:
    for shape in ("compose", "k8s"):
        place = ("--nodes", "2", "--master-addr", "host", "--format", shape)
        _, text = say(pair[0], "--target", pair[1], *place)

        assert "&id" not in text
