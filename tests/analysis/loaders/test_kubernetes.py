"""Kubernetes objects: sizes by the scheduler's rules, times, outcomes, gangs and retries, several lists."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from analysis.errors import BadFileError, UsageError
from analysis.loaders import load
from analysis.loaders.kubernetes import read_kubernetes_nodes
from analysis.loaders.kubernetes_objects import ObjectError, parse_quantity, parse_time
from analysis.loaders.kubernetes_pods import Run, attempt_runs, peak
from analysis.loaders.kubernetes_resources import allowed_types, pod_request

T0 = datetime(2024, 5, 1, 8, tzinfo=UTC)


def at(minute):
    return (T0 + timedelta(minutes=minute)).strftime("%Y-%m-%dT%H:%M:%SZ")


def box(*, gpus=None, cpu=None, mem=None, resource="nvidia.com/gpu", **more):
    asked = {key: value for key, value in ((resource, gpus), ("cpu", cpu), ("memory", mem)) if value is not None}
    return {"resources": {"limits": asked}} | more


def pod(uid, *, start=None, end=None, gpus=1, phase=None, node="n1", owner=None, **status):
    containers = []
    if end is not None:
        containers = [{"restartCount": 0, "state": {"terminated": {"startedAt": at(start), "finishedAt": at(end)}}}]
    own = {"phase": phase or ("Succeeded" if end is not None else "Pending" if start is None else "Running")}
    if start is not None:
        own["startTime"] = at(start)
    meta = {"uid": uid, "name": f"pod-{uid}", "namespace": "ml", "creationTimestamp": at(0)}
    if owner:
        meta["ownerReferences"] = [{"kind": owner[0], "uid": owner[1], "name": f"job-{owner[1]}", "controller": True}]
    spec = {"containers": [box(gpus=gpus)], "nodeName": node if start is not None else None}
    whole = own | {"containerStatuses": containers} | status
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": whole}


def batch(uid, *, parallel=1, wanted=None, gpus=1, conditions=(), **status):
    spec = {"parallelism": parallel, "completions": wanted, "template": {"spec": {"containers": [box(gpus=gpus)]}}}
    meta = {"uid": uid, "name": f"job-{uid}", "namespace": "ml", "creationTimestamp": at(0)}
    told = [{"type": kind, "status": "True", "reason": why, "lastTransitionTime": at(m)} for kind, why, m in conditions]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": spec,
        "status": {"conditions": told} | status,
    }


@pytest.fixture
def listed(tmp_path):
    def put(*items, name="objects.json", kind="List", **options):
        path = tmp_path / name
        path.write_text(json.dumps({"apiVersion": "v1", "kind": kind, "metadata": {}, "items": items}), "utf-8")
        return load("kubernetes", path, **options)

    return put


def only(trace):
    assert trace.jobs.height == 1, trace.rejects
    return trace.jobs.row(0, named=True)


@pytest.mark.parametrize(
    ("spec", "gpus", "cpus"),
    [
        ({"containers": [box(gpus="2", cpu="1"), box(gpus="1", cpu="500m"), {}]}, 3, 1.5),
        ({"containers": [box(gpus="1", cpu="1")], "initContainers": [box(gpus="4"), box(cpu="3")]}, 4, 3),
        # A sidecar stays: it adds to the containers and to the init containers after it.
        (
            {
                "containers": [box(gpus="1", cpu="1")],
                "initContainers": [box(gpus="1", cpu="1", restartPolicy="Always"), box(gpus="2", cpu="1")],
            },
            3,
            2,
        ),
        ({"containers": [{"resources": {"requests": {"nvidia.com/gpu": "2"}, "limits": {"cpu": "2"}}}]}, 2, 2),
        ({"containers": [{"resources": {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}}]}, 0, 1),
        ({"containers": [box(gpus=3, resource="nvidia.com/mig-2g.20gb")]}, 3, 0),
        ({"containers": [box(gpus="8", resource="amd.com/gpu")]}, 8, 0),
        ({"containers": [box(gpus="8", resource="example.com/fpga")]}, 0, 0),
        ({"containers": [box(cpu="1")], "overhead": {"cpu": "250m"}}, 0, 1.25),
        ({}, 0, 0),
    ],
)
def test_what_a_pod_occupies(spec, gpus, cpus):
    request = pod_request(spec)
    assert (request.num_gpus, request.num_cpus) == (gpus, cpus)


@pytest.mark.parametrize(
    ("text", "value"),
    [("100m", 0.1), ("1.5", 1.5), ("16Gi", 16 * 2**30), ("129M", 129e6), ("12e6", 12e6), ("1E", 1e18), (".5", 0.5)],
)
def test_quantities(text, value):
    assert parse_quantity(text, name="x") == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("text", ["", "many", "-1", "1 Gi", "1KiB", "0x10", None, True, [], "1e999"])
def test_what_is_no_quantity(text):
    with pytest.raises(ObjectError, match="unreadable_x"):
        parse_quantity(text, name="x")


def test_times_carry_their_offset():
    for text in ("2024-05-01T08:00:00Z", "2024-05-01T10:00:00+02:00", "2024-05-01T08:00:00.000000000Z"):
        assert parse_time({"t": text}, "t") == T0
    for text in ("2024-05-01T08:00:00", "2024-13-01T08:00:00Z", "soon", "0001-01-01T00:00:00+02:00"):
        with pytest.raises(ObjectError):
            parse_time({"t": text}, "t")


def test_allowed_models_of_selector_and_affinity():
    def affinity(*terms):
        rules = [{"matchExpressions": term} for term in terms]
        return {
            "affinity": {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": rules}}
            }
        }

    a100 = {"key": "nvidia.com/gpu.product", "operator": "In", "values": ["A100", "H100"]}
    zone = {"key": "zone", "operator": "In", "values": ["a"]}
    assert allowed_types({"nodeSelector": {"nvidia.com/gpu.product": "T4", "zone": "a"}}) == ["T4"]
    assert allowed_types(affinity([a100, zone])) == ["A100", "H100"]
    # Terms are alternatives: the second accepts any model.
    assert allowed_types(affinity([a100], [zone])) is None
    assert allowed_types({}) is None


def test_a_pod_holds_its_gpus_from_its_start_to_its_last_container(listed):
    job = only(listed(pod("a", start=5, end=65, gpus=2)))
    assert (job["queueing_delay_s"], job["duration_s"], job["num_gpus"]) == (300, 3600, 2)
    assert (job["status"], job["num_nodes"], job["is_single_node"]) == ("completed", 1, True)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"reason": "Evicted"}, "preempted"),
        ({"reason": "NodeLost"}, "node_fail"),
        ({"reason": "DeadlineExceeded"}, "timeout"),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            "preempted",
        ),
        ({}, "failed"),
    ],
)
def test_why_a_pod_failed(listed, status, expected):
    assert only(listed(pod("a", start=1, end=2, phase="Failed", **status)))["status"] == expected


def test_b40_a_running_pod_is_censored_at_the_snapshot(listed):
    running = pod("a", start=10)
    assert only(listed(running))["duration_s"] is None
    job = only(listed(running, snapshot=at(25)))
    assert (job["censoring"], job["duration_s"], job["status"]) == ("right", 900, "running")


def test_a_pod_that_never_ran(listed):
    assert only(listed(pod("a")))["censoring"] == "never_started"
    refused = only(listed(pod("a", phase="Failed", reason="UnexpectedAdmissionError")))
    assert (refused["censoring"], refused["status"], refused["duration_s"]) == ("never_started", "failed", None)


def test_a_gang_of_pods_is_one_attempt_and_retries_are_several():
    def run(start, end, gpus=1.0):
        return Run(T0 + timedelta(minutes=start), None if end is None else T0 + timedelta(minutes=end), ("n",), gpus)

    gang = attempt_runs([run(0, 10), run(1, 12), run(2, 9)])
    assert [(r.start, r.end, r.num_gpus) for r in gang] == [(T0, T0 + timedelta(minutes=12), 3)]
    retried = attempt_runs([run(20, 30, 4), run(0, 10, 4), run(10, 15, 4)])
    assert [r.num_gpus for r in retried] == [4, 4, 4]
    assert attempt_runs([run(0, None), run(50, 60)])[0].end is None
    assert peak([run(0, 10, 2), run(10, 20, 3), run(15, 16, 1)]) == 4
    assert peak([run(5, 5, 2)]) == 2


def test_pods_of_a_job_are_folded_into_it(listed):
    owner = ("Job", "j")
    done = batch(
        "j", parallel=2, wanted=2, gpus=4, conditions=[("Complete", None, 90)], startTime=at(0), completionTime=at(90)
    )
    trace = listed(
        done, pod("a", start=30, end=90, gpus=4, owner=owner), pod("b", start=31, end=80, gpus=4, owner=owner)
    )
    job = only(trace)
    assert (job["num_gpus"], job["num_tasks"], job["num_attempts"]) == (8, 2, 1)
    assert (job["queueing_delay_s"], job["duration_s"]) == (1800, 3600)
    report = trace.meta.load_report
    assert (report.rows_in, report.rows_used, report.rows_merged) == (3, 3, 2)
    assert trace.attempts.select("job_id", "attempt", "gpus").rows() == [("j", 1, 8)]


def test_a_retried_job_sums_its_attempts_without_the_pause(listed):
    owner = ("Job", "j")
    failed = batch("j", conditions=[("Failed", "BackoffLimitExceeded", 40)])
    first, second = (
        pod("a", start=1, end=11, phase="Failed", owner=owner),
        pod("b", start=20, end=40, phase="Failed", owner=owner),
    )
    for items in ([failed, first, second], [second, first]):
        job = only(listed(*items))
        assert (job["job_id"], job["num_attempts"], job["duration_s"], job["status"]) == ("j", 2, 1800, "failed")


def test_a_job_without_pods_has_its_own_times_and_that_is_said(listed):
    done = batch("j", parallel=4, wanted=2, conditions=[("Complete", None, 90)], startTime=at(1), completionTime=at(91))
    trace = listed(done)
    job = only(trace)
    assert (job["num_tasks"], job["duration_s"], job["queueing_delay_s"]) == (2, 5400, 60)
    assert any("no pods in the list" in note for note in trace.meta.load_report.notes)


@pytest.mark.parametrize(
    ("conditions", "status", "expected"),
    [
        ([("Failed", "DeadlineExceeded", 5)], {}, "timeout"),
        ([("Failed", "BackoffLimitExceeded", 5)], {}, "failed"),
        ([("Suspended", None, 5)], {}, "suspended"),
        ([], {"active": 1, "startTime": at(1)}, "running"),
        ([], {}, "pending"),
    ],
)
def test_outcomes_of_batch_jobs(listed, conditions, status, expected):
    assert only(listed(batch("j", conditions=conditions, **status)))["status"] == expected


def training(kind="PyTorchJob", api="kubeflow.org/v1", key="pytorchReplicaSpecs", conditions=("Created", "Running")):
    template = {"spec": {"containers": [box(gpus=8)], "nodeSelector": {"nvidia.com/gpu.product": "H100"}}}
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {"uid": "t", "name": "ddp", "namespace": "ml", "creationTimestamp": at(0)},
        "spec": {key: {"Master": {"template": template}, "Worker": {"replicas": 3, "template": template}}},
        "status": {
            "startTime": at(2),
            "completionTime": at(62) if "Succeeded" in conditions else None,
            "conditions": [{"type": word, "status": "True", "lastTransitionTime": at(50)} for word in conditions],
        },
    }


@pytest.mark.parametrize(
    ("kind", "api", "key"),
    [
        ("PyTorchJob", "kubeflow.org/v1", "pytorchReplicaSpecs"),
        ("TFJob", "training.kubedl.io/v1alpha1", "tfReplicaSpecs"),
        ("MPIJob", "kubeflow.org/v2beta1", "mpiReplicaSpecs"),
    ],
)
def test_training_jobs_of_kubeflow_and_kubedl(listed, kind, api, key):
    job = only(listed(training(kind, api, key, ("Created", "Running", "Succeeded"))))
    assert (job["num_gpus"], job["num_tasks"], job["workload"]) == (32, 4, kind)
    assert (job["status"], job["duration_s"], job["queueing_delay_s"]) == ("completed", 3600, 120)
    assert job["allowed_gpu_types"] == ["H100"]


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        (["Created"], "pending"),
        (["Created", "Queuing"], "pending"),
        (["Created", "Running"], "running"),
        (["Created", "Running", "Restarting"], "running"),
        (["Created", "Failed", "Running"], "failed"),
        (["Created", "Stopped"], "cancelled"),
        (["Created", "Daydreaming"], "unknown"),
    ],
)
def test_conditions_of_training_jobs(listed, conditions, expected):
    assert only(listed(training(conditions=tuple(conditions))))["status"] == expected


@pytest.mark.parametrize(
    ("phase", "expected"),
    [("Completed", "completed"), ("Aborted", "cancelled"), ("Terminated", "failed"), ("Running", "running")],
)
def test_volcano_jobs_run_from_their_condition(listed, phase, expected):
    volcano = {
        "apiVersion": "batch.volcano.sh/v1alpha1",
        "kind": "Job",
        "metadata": {"uid": "v", "name": "mpi", "namespace": "ml", "creationTimestamp": at(0)},
        "spec": {"queue": "gold", "tasks": [{"replicas": 2, "template": {"spec": {"containers": [box(gpus=4)]}}}]},
        "status": {
            "state": {"phase": phase},
            "conditions": [
                {"status": "Running", "lastTransitionTime": at(10)},
                {"status": phase, "lastTransitionTime": at(10 if phase == "Running" else 40)},
            ],
        },
    }
    job = only(listed(volcano))
    assert (job["status"], job["vc"], job["account"], job["num_gpus"]) == (expected, "gold", "ml", 8)
    assert job["queueing_delay_s"] == 600
    assert job["duration_s"] == (None if phase == "Running" else 1800)


def test_several_lists_are_one_cluster_and_the_newest_object_counts(tmp_path):
    def put(name, *items, kind="List"):
        (tmp_path / name).write_text(json.dumps({"kind": kind, "apiVersion": "v1", "metadata": {}, "items": items}))

    older, newer = pod("a", start=5), pod("a", start=5, end=65)
    older["metadata"]["resourceVersion"], newer["metadata"]["resourceVersion"] = "99", "100"
    node = {
        "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.product": "L4"}},
        "status": {"capacity": {"nvidia.com/gpu": "4"}},
    }
    put("nodes.json", node, kind="NodeList")
    for first, second in ((older, newer), (newer, older)):
        put("monday.json", first)
        put("tuesday.json", second, pod("b", start=1, end=2))
        trace = load("auto", tmp_path)
        assert trace.jobs["job_id"].to_list() == ["a", "b"]
        assert trace.jobs["duration_s"].to_list() == [3600, 60]
        assert trace.jobs["gpu_type"].to_list() == ["L4", "L4"]
        report = trace.meta.load_report
        assert (report.rows_in, report.rows_used, report.rejected_by_reason) == (4, 3, {"duplicate_id": 1})
        assert trace.rejects["file"].to_list() == ["monday.json" if first is older else "tuesday.json"]


def test_a_single_object_and_a_bare_array_will_do(tmp_path):
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod("a", start=0, end=1)))
    assert load("auto", path).jobs.height == 1
    path.write_text(json.dumps([pod("a", start=0, end=1), 7]))
    assert load("auto", path).meta.load_report.rejected_by_reason == {"not_a_record": 1}


def test_malformed_objects_are_set_aside_with_reason_and_number(listed):
    fine = pod("fine", start=0, end=1)
    spoilt = {
        "unreadable_metadata": pod("a") | {"metadata": []},
        "unreadable_nvidia.com/gpu": pod("b", gpus="lots"),
        "unreadable_startTime": pod("c") | {"status": {"phase": "Running", "startTime": "noon"}},
        "unreadable_containers": pod("d") | {"spec": {"containers": 5}},
        "unreadable_restartCount": pod("e", containerStatuses=[{"restartCount": -1}]),
        "unreadable_namespace": pod("f") | {"metadata": {"uid": "f", "namespace": 5}},
        "unsupported_kind": {"apiVersion": "v1", "kind": "Service", "metadata": {"uid": "s"}},
        "no_id": {"apiVersion": "v1", "kind": "Pod", "metadata": {}},
    }
    trace = listed(*spoilt.values(), fine)
    assert trace.jobs["job_id"].to_list() == ["fine"]
    assert trace.rejects.select("line", "reason").rows() == list(enumerate(spoilt, start=1))
    assert all(json.loads(text) for text in trace.rejects["raw"])


def test_conditions_of_odd_types_do_no_harm(listed):
    odd = batch("j")
    odd["status"]["conditions"] = [{"type": [], "status": "True"}, {"type": {}, "status": "True"}]
    assert only(listed(odd))["status"] == "pending"


def test_nodes_for_a_cluster(tmp_path):
    path = tmp_path / "nodes.json"
    mig = {"nvidia.com/mig-1g.10gb": "7", "nvidia.com/gpu": "0", "cpu": "64", "memory": "512Gi"}
    nodes = [
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "b"}, "status": {"allocatable": mig}},
        {"kind": "Node", "apiVersion": "v1", "metadata": {"name": "a"}, "status": {}},
    ]
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": nodes}))
    table = read_kubernetes_nodes(path)
    assert table.select("node_id", "num_gpus", "num_cpus", "mem_gib").rows() == [
        ("a", 0, None, None),
        ("b", 7, 64, 512),
    ]
    path.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "metadata": {}, "items": []}))
    with pytest.raises(BadFileError, match="no node"):
        read_kubernetes_nodes(path)


@pytest.mark.parametrize("text", ["{}", "7", '{"items": []}', '{"kind": "PodList", "items": 7}'])
def test_json_of_something_else_is_refused(tmp_path, text):
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(BadFileError, match="kubectl get"):
        load("kubernetes", path)


def test_a_snapshot_that_is_no_instant_is_refused(listed):
    with pytest.raises(UsageError, match="yesterday"):
        listed(pod("a"), snapshot="yesterday")
