"""The example manifests fit the API, and one another."""

from pathlib import Path
from typing import Any

import yaml

from goodput_operator import constants as c
from goodput_operator.api.spec import TrainingJobSpec

EXAMPLES = Path(__file__).parents[3] / "examples"


def objects(path: str) -> dict[str, Any]:
    found = yaml.safe_load_all((EXAMPLES / path).read_text())
    return {item["kind"]: item for item in found}


JOB = objects("digits/trainingjob.yaml")["TrainingJob"]


def test_every_field_of_the_job_is_one_of_the_api() -> None:
    spec = TrainingJobSpec.model_validate(JOB["spec"])
    known = spec.model_dump(by_alias=True, mode="json", exclude_unset=True)
    assert known == JOB["spec"]


def test_job_names_the_queue_and_the_claim_of_the_other_files() -> None:
    kueue = objects("kueue/queue.yaml")
    assert JOB["metadata"]["labels"][c.LABEL_QUEUE] == kueue["LocalQueue"]["metadata"]["name"]
    cluster_queue = kueue["ClusterQueue"]
    assert kueue["LocalQueue"]["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]
    flavors = cluster_queue["spec"]["resourceGroups"][0]["flavors"]
    assert [flavor["name"] for flavor in flavors] == [kueue["ResourceFlavor"]["metadata"]["name"]]
    claim = objects("digits/storage.yaml")["PersistentVolumeClaim"]
    assert JOB["spec"]["checkpoint"]["volume"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_manifests_go_into_the_namespace_that_the_user_is_in() -> None:
    for path in ("digits/trainingjob.yaml", "digits/storage.yaml", "kueue/queue.yaml"):
        for item in objects(path).values():
            assert "namespace" not in item["metadata"]
