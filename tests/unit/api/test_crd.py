from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel

from goodput_operator.api import crd
from goodput_operator.api.schema import structural_schema
from goodput_operator.api.spec import TrainingJobSpec

REPOSITORY = Path(__file__).parents[3]
POD = ("spec", "roles", "[]", "template", "spec")
CONTAINER = (*POD, "containers", "[]")


def root() -> dict[str, Any]:
    version = crd.training_job_crd()["spec"]["versions"][0]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


def at(*path: str) -> dict[str, Any]:
    node = root()
    for step in path:
        node = node["items"] if step == "[]" else node["properties"][step]
    return node


def nodes(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from nodes(child, f"{path}.{name}")
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            yield from nodes(schema[keyword], f"{path}[]")


def test_the_manifest_in_the_repository_is_up_to_date() -> None:
    assert crd.main(["--check", str(REPOSITORY / "crds")]) == 0


def test_writing_twice_gives_the_same_file(tmp_path: Path) -> None:
    assert crd.main([str(tmp_path / "new")]) == 0
    first = (tmp_path / "new/goodput.dev_trainingjobs.yaml").read_text(encoding="utf-8")
    assert crd.main([str(tmp_path / "new")]) == 0
    assert (tmp_path / "new/goodput.dev_trainingjobs.yaml").read_text(encoding="utf-8") == first
    assert yaml.safe_load(first) == crd.training_job_crd()


def test_a_node_health_is_cluster_wide_and_tells_an_administrator_what_to_know() -> None:
    made = crd.node_health_crd()
    spec, version = made["spec"], made["spec"]["versions"][0]
    assert made["metadata"]["name"] == "nodehealths.goodput.dev"
    assert (spec["scope"], spec["names"]["shortNames"]) == ("Cluster", ["nh"])
    assert [each["name"] for each in version["additionalPrinterColumns"]] == [
        "Score",
        "Failures",
        "Last",
        "Kind",
        "Avoided",
        "Job",
        "Message",
        "Age",
    ]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    for _, schema in nodes(status):
        assert "$ref" not in schema
        assert "anyOf" not in schema
        assert "default" not in schema


@pytest.mark.parametrize("content", [None, "stale"])
def test_check_fails_on_a_difference(
    content: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "goodput.dev_trainingjobs.yaml"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    assert crd.main(["--check", str(tmp_path)]) == 1
    assert "is not up to date" in capsys.readouterr().err
    assert (path.read_text(encoding="utf-8") if path.exists() else None) == content


def test_every_node_is_structural() -> None:
    allowed_without_type = "x-kubernetes-int-or-string"
    for path, node in nodes(root()):
        assert "type" in node or allowed_without_type in node, path
        assert not {"$ref", "$defs", "title", "const", "nullable", "allOf", "oneOf"} & set(node), (
            path
        )
        assert allowed_without_type in node or "anyOf" not in node, path
        assert not ("properties" in node and "additionalProperties" in node), path


def test_every_field_says_what_it_is() -> None:
    bare = [path for path, node in nodes(root()) if "description" not in node]
    assert [path for path in bare if not path.endswith("[]") and path != ".metadata"] == []


def test_spec_has_the_models_defaults_and_status_has_none() -> None:
    assert at("spec", "faultTolerance")["default"] == {
        "restartScope": "Gang",
        "maxCrashRestarts": 3,
        "maxHangRestarts": 3,
        "firstStepTimeoutSeconds": 1800,
        "crashBackoff": {"baseSeconds": 10, "maxSeconds": 300},
        "forgiveAfterSeconds": 21600,
        "rules": [],
    }
    assert at("spec", "suspend")["default"] is False
    assert at("spec", "roles", "[]", "replicas")["default"] == 1
    assert "default" not in at("spec", "checkpoint")
    assert at(*POD, "restartPolicy")["default"] == "Never"
    assert [path for path, node in nodes(at("status")) if "default" in node] == []


def test_defaults_written_by_the_server_equal_those_of_the_model() -> None:
    role = {"name": "w", "template": {"spec": {}}}
    filled = {
        name: child["default"]
        for name, child in at("spec")["properties"].items()
        if "default" in child
    }
    assert TrainingJobSpec.model_validate({"roles": [role], **filled}) == (
        TrainingJobSpec.model_validate({"roles": [role]})
    )


def test_unknown_fields_of_a_template_survive_at_every_level() -> None:
    for path, node in nodes(at(*POD[:-1])):
        if "properties" in node:
            assert node.get("x-kubernetes-preserve-unknown-fields") is True, path
    for path, node in nodes(root()):
        if ".template" not in path:
            assert "x-kubernetes-preserve-unknown-fields" not in node, path


def test_lists_keyed_by_name() -> None:
    for path in [("spec", "roles"), (*POD, "containers"), (*POD, "initContainers")]:
        assert at(*path)["x-kubernetes-list-map-keys"] == ["name"]
    assert at("status", "conditions")["x-kubernetes-list-map-keys"] == ["type"]


def test_what_rules_walk_is_bounded() -> None:
    for path in [
        ("spec", "roles"),
        (*POD, "containers"),
        (*POD, "initContainers"),
        (*POD, "volumes"),
        (*CONTAINER, "volumeMounts"),
    ]:
        assert at(*path)["maxItems"] > 0, path
    for path in [
        (*POD[:-1], "metadata", "labels"),
        (*POD[:-1], "metadata", "annotations"),
        (*CONTAINER, "resources", "requests"),
        (*CONTAINER, "resources", "limits"),
    ]:
        assert at(*path)["maxProperties"] > 0, path


def test_rules_name_a_field_and_a_remedy() -> None:
    rules = [rule for _, node in nodes(root()) for rule in node.get("x-kubernetes-validations", ())]
    assert len(rules) > 15
    for rule in rules:
        assert set(rule) <= {"rule", "message", "fieldPath"}
        assert len(rule["message"]) > 40, rule


def test_names_columns_and_subresource() -> None:
    spec = crd.training_job_crd()["spec"]
    version = spec["versions"][0]
    assert spec["names"]["shortNames"] == ["tj"]
    assert spec["scope"] == "Namespaced"
    assert version["subresources"] == {"status": {}}
    assert {c["name"]: c["jsonPath"] for c in version["additionalPrinterColumns"]} == {
        "State": ".status.phase",
        "Reason": ".status.reason",
        "Queue": r".metadata.labels.kueue\.x-k8s\.io/queue-name",
        "Ready": ".status.ready",
        "Attempt": ".status.attempt",
        "Step": ".status.progress.step",
        "Checkpoint": ".status.checkpoint.step",
        "Saved": ".status.checkpoint.savedAt",
        "Age": ".metadata.creationTimestamp",
    }


def test_a_type_that_a_structural_schema_cannot_say_is_an_error() -> None:
    class Either(BaseModel):
        value: int | str | None

    with pytest.raises(ValueError, match="unpack"):
        structural_schema(Either, defaults=True)
