import copy
from typing import Any

import pytest

from goodput_operator.builders.workload_status import (
    answer_checks,
    finish,
    reclaim_pods,
    release_quota,
    set_pods_ready,
)
from goodput_operator.domain.plan import (
    AnswerChecks,
    FinishWorkload,
    ReclaimPods,
    ReleaseQuota,
    SetPodsReady,
)

BEFORE = "2026-01-31T08:00:00Z"
NOW = 1769846460.9
AFTER = "2026-01-31T08:01:00Z"


def condition(kind: str, status: str, reason: str = "R", time: str = BEFORE) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": "before",
        "lastTransitionTime": time,
        "observedGeneration": 1,
    }


def changed(kind: str, status: str, reason: str, message: str, time: str = AFTER) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time,
        "observedGeneration": 2,
    }


def workload(*conditions: dict[str, Any], **status: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": "wl", "resourceVersion": "17", "generation": 2},
        "spec": {"active": True},
        "status": {"conditions": list(conditions), "keep": "me", **status},
    }


def answer(state: Any, after: int | None = None, message: str = "fits") -> AnswerChecks:
    return AnswerChecks("wl", "17", ("power",), state, message, after)


def check(name: str, state: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "state": state, "message": "m", "lastTransitionTime": BEFORE, **more}


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        (
            check("power", "Pending"),
            answer("Ready"),
            check("power", "Ready", message="fits", lastTransitionTime=AFTER),
        ),
        (
            check("power", "Pending"),
            answer("Pending", message="room at 08:05"),
            check("power", "Pending", message="room at 08:05"),
        ),
        (
            check("power", "Ready", podSetUpdates=[{"name": "w"}], retryCount=2),
            answer("Retry"),
            check(
                "power",
                "Retry",
                message="fits",
                lastTransitionTime=AFTER,
                podSetUpdates=[{"name": "w"}],
                retryCount=2,
            ),
        ),
        (
            check("power", "Pending"),
            answer("Retry", after=0),
            check(
                "power", "Retry", message="fits", lastTransitionTime=AFTER, requeueAfterSeconds=0
            ),
        ),
        (
            check("power", "Pending", requeueAfterSeconds=60),
            answer("Ready", after=60),
            check("power", "Ready", message="fits", lastTransitionTime=AFTER),
        ),
        (check("other", "Pending"), answer("Ready"), check("other", "Pending")),
    ],
    ids=["ready", "still pending", "retry now", "retry later", "no delay kept", "not ours"],
)
def test_answers_our_checks(
    before: dict[str, Any], action: AnswerChecks, after: dict[str, Any]
) -> None:
    raw = workload(admissionChecks=[check("else", "Pending"), before])
    assert answer_checks(raw, action, NOW)["status"]["admissionChecks"] == [
        check("else", "Pending"),
        after,
    ]


def test_a_check_that_kueue_has_not_made_yet_is_not_made() -> None:
    assert answer_checks(workload(), answer("Ready"), NOW) == workload()


ADMITTED = condition("Admitted", "True")


@pytest.mark.parametrize(
    ("conditions", "ready", "status", "reason", "time"),
    [
        ([ADMITTED], True, "True", "Started", AFTER),
        ([ADMITTED], False, "False", "WaitForStart", AFTER),
        (
            [ADMITTED, condition("PodsReady", "False", "WaitForStart")],
            False,
            "False",
            "WaitForStart",
            BEFORE,
        ),
        (
            [ADMITTED, condition("PodsReady", "False", "WaitForStart")],
            True,
            "True",
            "Started",
            AFTER,
        ),
        (
            [ADMITTED, condition("PodsReady", "True", "Started")],
            False,
            "False",
            "WaitForRecovery",
            AFTER,
        ),
        (
            [ADMITTED, condition("PodsReady", "False", "WaitForRecovery")],
            False,
            "False",
            "WaitForRecovery",
            BEFORE,
        ),
        (
            [ADMITTED, condition("PodsReady", "False", "WaitForRecovery")],
            True,
            "True",
            "Recovered",
            AFTER,
        ),
        (
            [ADMITTED, condition("PodsReady", "True", "Recovered")],
            True,
            "True",
            "Recovered",
            BEFORE,
        ),
        ([condition("PodsReady", "True", "Started")], False, "False", "WaitForStart", AFTER),
    ],
)
def test_pods_ready_tells_a_start_from_a_recovery(
    conditions: list[dict[str, Any]], ready: bool, status: str, reason: str, time: str
) -> None:
    action = SetPodsReady("wl", "17", ready, "4/4")
    written = set_pods_ready(workload(*conditions), action, NOW)["status"]["conditions"]
    (pods_ready,) = [item for item in written if item["type"] == "PodsReady"]
    assert pods_ready == changed("PodsReady", status, reason, "4/4", time)


@pytest.mark.parametrize("before", [None, 1, 2, 3])
def test_pods_that_are_not_there_are_reclaimable_and_never_fewer_than_before(
    before: int | None,
) -> None:
    kept = {} if before is None else {"reclaimablePods": [{"name": "worker", "count": before}]}
    raw = workload(ADMITTED, admission={"clusterQueue": "cq"}, **kept)
    status = reclaim_pods(raw, ReclaimPods("wl", "17", (("worker", 2),)), NOW)["status"]
    assert status["reclaimablePods"] == [{"name": "worker", "count": max(2, before or 0)}]
    assert status["admission"] == {"clusterQueue": "cq"}


def test_a_release_forgets_what_was_given_back_of_it() -> None:
    raw = workload(
        condition("Evicted", "True"),
        admission={"clusterQueue": "cq"},
        reclaimablePods=[{"name": "worker", "count": 2}],
    )
    assert "reclaimablePods" not in release_quota(raw, RELEASE, NOW)["status"]


RELEASE = ReleaseQuota("wl", "17", requeued=True, reason="Preempted", message="to make room")


def test_release_clears_the_admission_and_queues_again() -> None:
    evicted = condition("Evicted", "True", "Preempted")
    raw = workload(
        condition("QuotaReserved", "True", "QuotaReserved"),
        condition("Admitted", "True", "Admitted"),
        evicted,
        admission={"clusterQueue": "cq"},
        accumulatedPastExecutionTimeSeconds=30,
    )
    status = release_quota(raw, RELEASE, NOW)["status"]
    assert status == {
        "keep": "me",
        "accumulatedPastExecutionTimeSeconds": 90,
        "conditions": [
            changed("QuotaReserved", "False", "Pending", "to make room"),
            changed("Admitted", "False", "NoReservation", "The workload has no reservation"),
            evicted,
            changed("Requeued", "True", "Preempted", "to make room"),
        ],
    }


@pytest.mark.parametrize("reason", ["Started", "Recovered", "WaitForRecovery"])
def test_a_release_says_that_no_pods_are_ready(reason: str) -> None:
    ready = condition("PodsReady", "False" if reason == "WaitForRecovery" else "True", reason)
    raw = workload(condition("Evicted", "True"), ready, admission={"clusterQueue": "cq"})
    released = release_quota(raw, RELEASE, NOW)
    found = next(x for x in released["status"]["conditions"] if x["type"] == "PodsReady")
    assert (found["status"], found["reason"]) == ("False", "WaitForStart")
    again = set_pods_ready(released, SetPodsReady("wl", "17", True, "ready"), NOW)
    found = next(x for x in again["status"]["conditions"] if x["type"] == "PodsReady")
    assert (found["status"], found["reason"]) == ("True", "Started")


def test_release_of_what_was_evicted_before_its_checks_were_ready() -> None:
    raw = workload(
        condition("QuotaReserved", "True"),
        condition("Evicted", "True", "Deactivated"),
        admission={"clusterQueue": "cq"},
    )
    action = ReleaseQuota("wl", "17", requeued=False, reason="Deactivated", message="m")
    status = release_quota(raw, action, NOW)["status"]
    assert "admission" not in status
    assert "accumulatedPastExecutionTimeSeconds" not in status
    assert {item["type"]: item["status"] for item in status["conditions"]} == {
        "QuotaReserved": "False",
        "Evicted": "True",
        "Requeued": "False",
        "Admitted": "False",
    }


@pytest.mark.parametrize("conditions", [[], [condition("Evicted", "False")]])
def test_never_releases_what_is_not_evicted(conditions: list[dict[str, Any]]) -> None:
    with pytest.raises(ValueError, match="wl is not evicted"):
        release_quota(workload(*conditions, admission={"clusterQueue": "cq"}), RELEASE, NOW)


@pytest.mark.parametrize(("succeeded", "reason"), [(True, "Succeeded"), (False, "Failed")])
def test_finish(succeeded: bool, reason: str) -> None:
    action = FinishWorkload("wl", "17", succeeded, "rank 3 failed")
    assert finish(workload(), action, NOW)["status"]["conditions"] == [
        changed("Finished", "True", reason, "rank 3 failed")
    ]


def test_what_is_finished_stays_as_it_is() -> None:
    raw = workload(condition("Finished", "True", "Succeeded"))
    assert finish(raw, FinishWorkload("wl", "17", False, "late"), NOW) == raw


def test_the_object_read_is_never_changed() -> None:
    raw = workload(
        ADMITTED,
        condition("Evicted", "True"),
        admission={"clusterQueue": "cq"},
        admissionChecks=[check("power", "Pending")],
    )
    before = copy.deepcopy(raw)
    answer_checks(raw, answer("Ready"), NOW)
    set_pods_ready(raw, SetPodsReady("wl", "17", True, "m"), NOW)
    release_quota(raw, RELEASE, NOW)
    finish(raw, FinishWorkload("wl", "17", True, "m"), NOW)
    assert raw == before


def test_a_workload_without_status_gets_one() -> None:
    written = finish({"metadata": {}}, FinishWorkload("wl", "17", True, "m"), NOW)
    assert written["status"]["conditions"][0]["type"] == "Finished"


def test_messages_are_cut_to_what_kueue_accepts() -> None:
    written = finish(workload(), FinishWorkload("wl", "17", True, "x" * 40_000), NOW)
    assert len(written["status"]["conditions"][0]["message"]) == 32_768
