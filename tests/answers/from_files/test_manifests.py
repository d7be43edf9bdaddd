"""Scenarios from manifests of serving platforms, with their autoscalers, and what of manifests is refused."""

from pathlib import Path

import pytest

from sim.answers.from_files.autoscalers import quantity
from sim.scenario.schema import Scenario
from tests.answers.from_files.test_draft import MANIFEST, drafted, refused, written

HPA = """\
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: llama}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: llama}
  minReplicas: 2
  maxReplicas: 8
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 80}}}
    - type: Pods
      pods: {metric: {name: "vllm:num_requests_waiting"}, target: {type: AverageValue, averageValue: 2500m}}
  behavior:
    scaleDown:
      stabilizationWindowSeconds: 120
      policies: [{type: Pods, value: 1, periodSeconds: 60}]
    scaleUp: {selectPolicy: Disabled}
"""
KEDA = """\
apiVersion: keda.sh/v1alpha1
kind: ScaledObject
metadata: {name: scaler}
spec:
  scaleTargetRef: {name: llama}
  minReplicaCount: 0
  maxReplicaCount: 6
  cooldownPeriod: 600
  triggers:
    - type: prometheus
      metadata:
        serverAddress: http://me:hunter2@prometheus:9090
        query: sum(vllm:num_requests_running{app="llama"}) + sum(vllm:num_requests_waiting{app="llama"})
        threshold: "16"
"""
KSERVE = """\
apiVersion: serving.kserve.io/v1alpha1
kind: LLMInferenceService
metadata: {name: qwen}
spec:
  model: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B}
  replicas: 3
  parallelism: {tensor: 2}
  router: {scheduler: {}, route: {}, gateway: {}}
  template:
    nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
    containers:
      - name: main
        env: [{name: VLLM_ADDITIONAL_ARGS, value: "--max-model-len 8192 --max-num-seqs=64"}]
        resources: {limits: {nvidia.com/gpu: "2"}}
  prefill:
    replicas: 1
    parallelism: {tensor: 4}
    template:
      nodeSelector: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}
      containers: [{name: main, resources: {limits: {nvidia.com/gpu: "4"}}}]
"""
PREDICTOR = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata: {name: llm}
spec:
  predictor:
    minReplicas: 0
    maxReplicas: 4
    scaleMetric: concurrency
    scaleTarget: 20
    nodeSelector: {node.kubernetes.io/instance-type: g6e.xlarge}
    model:
      modelFormat: {name: huggingface}
      args: [--model_name=llama3, --model_id=meta-llama/Llama-3.1-8B-Instruct, --max-model-len=4096]
      resources: {limits: {nvidia.com/gpu: "1"}}
"""
DYNAMO = """\
apiVersion: nvidia.com/v1alpha1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  services:
    Frontend: {componentType: frontend, replicas: 1, extraPodSpec: {mainContainer: {image: "dynamo:1"}}}
    VllmPrefillWorker: &worker
      componentType: worker
      subComponentType: prefill
      replicas: 2
      envFromSecret: hf-token
      resources: {limits: {gpu: "1"}}
      extraPodSpec:
        nodeSelector: {gpu: h200-141gb-sxm}
        mainContainer:
          image: nvcr.io/nvidia/ai-dynamo/vllm-runtime:1.0
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-32B, --is-prefill-worker]
    VllmDecodeWorker:
      componentType: worker
      subComponentType: decode
      replicas: 3
      resources: {limits: {gpu: "1"}}
      extraPodSpec:
        nodeSelector: {gpu: h200-141gb-sxm}
        mainContainer:
          command: [python3, -m, dynamo.vllm]
          args: [--model, Qwen/Qwen3-32B, --is-decode-worker]
"""
LLM_D = """\
modelArtifacts: {uri: "hf://Qwen/Qwen3-32B", name: Qwen/Qwen3-32B, size: 80Gi, authSecretName: hunter2-token}
routing: {proxy: {enabled: true}}
decode:
  replicas: 2
  parallelism: {tensor: 4}
  acceleratorTypes: {labelKey: nvidia.com/gpu.product, labelValues: [NVIDIA-H100-80GB-HBM3]}
  containers:
    - {name: vllm, image: "ghcr.io/llm-d/llm-d-cuda:v0.3.0", modelCommand: vllmServe, args: [--block-size, "32"]}
prefill:
  create: false
  replicas: 4
  containers: [{name: vllm, modelCommand: vllmServe}]
"""
RAY = """\
applications:
  - name: llm
    import_path: ray.serve.llm:build_openai_app
    args:
      llm_configs:
        - model_loading_config: {model_id: qwen, model_source: Qwen/Qwen3-32B}
          accelerator_type: H100
          deployment_config:
            autoscaling_config: {min_replicas: 1, max_replicas: 4, target_ongoing_requests: 32}
            max_ongoing_requests: 128
          engine_kwargs: {tensor_parallel_size: 2, max_model_len: 16384, enable_prefix_caching: false}
"""
COMPOSE = """\
services:
  web: {image: "nginx:1"}
  llm:
    image: vllm/vllm-openai:v0.11.0
    command: --model Qwen/Qwen3-32B --tensor-parallel-size 2
    environment: [HF_TOKEN=hf_hunter2]
    deploy:
      replicas: 2
      resources: {reservations: {devices: [{driver: nvidia, count: 2, capabilities: [gpu]}]}}
"""
STACK = """\
servingEngineSpec:
  modelSpec:
    - name: qwen
      repository: vllm/vllm-openai
      tag: v0.11.0
      modelURL: Qwen/Qwen3-32B
      replicaCount: 2
      requestGPU: 2
      nodeSelectorTerms:
        - matchExpressions: [{key: nvidia.com/gpu.product, operator: In, values: [NVIDIA-H100-80GB-HBM3]}]
      vllmConfig: {tensorParallelSize: 2, maxModelLen: 16384, enablePrefixCaching: false, extraArgs: [--max-num-seq=64]}
      lmcacheConfig: {enabled: true, cpuOffloadingBufferSize: "20"}
      keda: {enabled: true, minReplicaCount: 1, maxReplicaCount: 6}
      hf_token: hunter2
    - {name: off, enabled: false, modelURL: other/model}
routerSpec: {routingLogic: session}
"""
RUNTIME = """\
apiVersion: production-stack.vllm.ai/v1alpha1
kind: VLLMRuntime
metadata: {name: qwen}
spec:
  model: {modelURL: Qwen/Qwen3-32B, maxModelLen: 16384}
  vllmConfig: {tensorParallelSize: 2, v1: true, port: 8000}
  deploymentConfig: {replicas: 2, resources: {gpu: "2"}, image: {name: "lmcache/vllm-openai:2025-05-27-v1"}}
  autoscalingConfig: {enabled: true, maxReplicas: 6, triggers: {requestsRunningThreshold: 7}}
"""
GRAPH = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data:
  worker.yaml: |
    model-path: Qwen/Qwen3-32B
    tp-size: 2
    max-running-requests: 64
    enable-metrics: true
---
apiVersion: nvidia.com/v1beta1
kind: DynamoGraphDeployment
metadata: {name: graph}
spec:
  components:
    - name: Frontend
      type: frontend
      podTemplate: {spec: {containers: [{name: main, env: [{name: DYN_ROUTER_MODE, value: kv}]}]}}
    - {name: Planner, type: planner, podTemplate: {spec: {containers: [{name: main, args: [--backend=vllm]}]}}}
    - name: Worker
      type: decode
      replicas: 3
      podTemplate:
        spec:
          nodeSelector: {gpu: h200-141gb-sxm}
          containers:
            - name: main
              image: nvcr.io/nvidia/ai-dynamo/sglang-runtime:1.6.0
              command: [python3, -m, dynamo.sglang]
              args: [--config, /etc/sglang/worker.yaml, --dyn-reasoning-parser, qwen3]
              resources: {limits: {nvidia.com/gpu: "2"}}
"""
GROUPS = """\
apiVersion: disaggregatedset.x-k8s.io/v1
kind: DisaggregatedSet
metadata: {name: wide}
spec:
  slices: 2
  roles:
    - name: prefill
      spec: &role
        replicas: 3
        leaderWorkerTemplate:
          size: 2
          workerTemplate:
            spec:
              nodeSelector: {gpu: h200-141gb-sxm}
              containers:
                - name: vllm
                  image: ghcr.io/llm-d/llm-d-cuda:v0.7.0
                  command: [/bin/bash, -c]
                  args:
                    - |
                      exec vllm serve deepseek-ai/DeepSeek-R1 --enable-expert-parallel \\
                        --data-parallel-size $((LWS_GROUP_SIZE * LOCAL)) --max-num-seqs ${MAX:-256}
                  env:
                    - {name: LOCAL, value: "8"}
                    - {name: VLLM_NIXL_SIDE_CHANNEL_HOST, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
                  resources: {limits: {nvidia.com/gpu: "8"}}
    - name: decode
      spec: *role
"""


def scenario_of(folder: Path, gpu: str | None = None, **texts: str) -> Scenario:
    """Return the scenario of files with *texts*, keyed by name with two underscores for the dot."""
    return drafted(folder, written(folder, **texts), gpu=gpu)[2]


@pytest.mark.slow
def test_an_hpa_in_a_file_of_its_own_scales_its_deployment(tmp_path: Path) -> None:
    draft, _, scenario = drafted(tmp_path, written(tmp_path, server__yaml=MANIFEST, hpa__yaml=HPA))
    [pool] = scenario.fleets[0].pools
    assert pool.autoscaling is not None
    assert (pool.replicas, pool.most_replicas, scenario.fleets[0].name) == (3, 8, "16x a100-80gb-sxm")
    assert pool.autoscaling.model_dump(exclude_unset=True) == {
        "policy": "hpa",
        "min_replicas": 2,
        "max_replicas": 8,
        "metric": "waiting_per_replica",
        "target": 2.5,
        "scale_down_stabilization_s": 120,
        "scale_down": {"policies": ({"type": "pods", "value": 1, "period_s": 60},)},
        "scale_up": {"policies": ({"type": "percent", "value": 100, "period_s": 15},), "select": "disabled"},
    }
    assert draft.sources[1].not_simulated == ["HorizontalPodAutoscaler llama: cpu (no gauge of an engine)"]
    assert "sync_period_s 15.0" in draft.defaulted[0]
    assert "max_num_seqs" in draft.defaulted[0]


@pytest.mark.slow
def test_the_start_of_a_scaled_engine_that_was_never_measured_is_assumed(tmp_path: Path) -> None:
    text = MANIFEST.replace("vllm/vllm-openai:v0.11.0", "lmsysorg/sglang:v0.5.4").replace(
        "[--model, ", "[--model-path, "
    )
    text = text.replace('"--tensor-parallel-size=2", --max-model-len, "32768"', "--tp=2")
    text = text.replace("args: [", "args: [python3, -m, sglang.launch_server, ")
    draft, written_text, scenario = drafted(tmp_path, written(tmp_path, all__yaml=f"{text}---\n{HPA}"), gpu="h100")
    assert scenario.fleets[0].pools[0].cold_start is not None
    assert "assumed: the start time of this engine was never measured" in written_text
    assert draft.data["fleets"][0]["pools"][0]["cold_start"] == {"engine_s": 60}


@pytest.mark.slow
def test_an_argument_with_spaces_in_its_value_is_one_word(tmp_path: Path) -> None:
    text = MANIFEST.replace('"--tensor-parallel-size=2"', "'--hf-overrides={\"a\": 0}', --tensor-parallel-size 2")
    text = text.replace("replicas: 3", "replicas: 0")
    draft, _, scenario = drafted(tmp_path, written(tmp_path, all__yaml=text))
    assert scenario.fleets[0].pools[0].tensor_parallel_size == 2
    assert "llama: replicas 0 (read as not stated)" in draft.sources[0].not_simulated


@pytest.mark.slow
def test_keda_counts_requests_of_a_query_and_its_address_is_not_copied(tmp_path: Path) -> None:
    [pool] = scenario_of(tmp_path, server__yaml=f"{MANIFEST}---\n{KEDA}").fleets[0].pools
    assert pool.autoscaling is not None
    assert pool.autoscaling.model_dump(exclude_unset=True) == {
        "policy": "keda",
        "min_replicas": 0,
        "max_replicas": 6,
        "cooldown_period_s": 600,
        "metric": "outstanding",
        "target": 16,
    }


@pytest.mark.slow
def test_a_gauge_that_keda_averages_is_that_of_an_hpa(tmp_path: Path) -> None:
    text = KEDA.replace("minReplicaCount: 0", "minReplicaCount: 1").replace('threshold: "16"', 'threshold: "0.7"')
    query = text[text.index("query:") : text.index("threshold")]
    text = text.replace(query, "query: avg(vllm:kv_cache_usage_perc)\n        ")
    [pool] = scenario_of(tmp_path, server__yaml=f"{MANIFEST}---\n{text}").fleets[0].pools
    assert pool.autoscaling is not None
    assert pool.autoscaling.model_dump(include={"policy", "metric", "target"}) == {
        "policy": "hpa",
        "metric": "kv_used",
        "target": 0.7,
    }


@pytest.mark.slow
def test_kserve_has_prefill_and_decode_servers(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, kserve__yaml=KSERVE)
    prefill, decode = scenario.fleets[0].pools
    assert (decode.name, decode.role, decode.replicas, decode.tensor_parallel_size) == ("qwen", "decode", 3, 2)
    assert (prefill.name, prefill.role, prefill.replicas, prefill.tensor_parallel_size) == (
        "qwen-prefill",
        "prefill",
        1,
        4,
    )
    assert (decode.gpu, decode.max_model_len, decode.batching.max_num_seqs) == ("h100-80gb-sxm", 8192, 64)
    assert scenario.fleets[0].kv_transfer is not None


@pytest.mark.slow
def test_a_predictor_is_scaled_by_knative(tmp_path: Path) -> None:
    [pool] = scenario_of(tmp_path, predictor__yaml=PREDICTOR).fleets[0].pools
    assert (pool.gpu, pool.max_model_len) == ("l40s", 4096)
    assert pool.autoscaling is not None
    assert pool.autoscaling.model_dump(include={"policy", "min_replicas", "max_replicas", "target"}) == {
        "policy": "kpa",
        "min_replicas": 0,
        "max_replicas": 4,
        "target": 20,
    }


@pytest.mark.slow
def test_workers_of_a_dynamo_graph_have_roles(tmp_path: Path) -> None:
    draft, _, scenario = drafted(tmp_path, written(tmp_path, graph__yaml=DYNAMO))
    assert [(pool.name, pool.role, pool.replicas, pool.gpu) for pool in scenario.fleets[0].pools] == [
        ("VllmPrefillWorker", "prefill", 2, "h200-141gb-sxm"),
        ("VllmDecodeWorker", "decode", 3, "h200-141gb-sxm"),
    ]
    assert draft.sources[0].secrets == ["envFromSecret"]


@pytest.mark.slow
def test_values_of_llm_d_state_parallelism_beside_the_command(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, values__yaml=LLM_D)
    [pool] = scenario.fleets[0].pools
    assert (pool.name, pool.role, pool.replicas, pool.tensor_parallel_size) == ("decode", "both", 2, 4)
    assert pool.batching.model_dump()["block_size"] == 32


@pytest.mark.slow
def test_ray_serve_scales_on_ongoing_requests(tmp_path: Path) -> None:
    inside = "".join(f"    {line}\n" for line in RAY.splitlines())
    service = f"apiVersion: ray.io/v1\nkind: RayService\nmetadata: {{name: r}}\nspec:\n  serveConfigV2: |\n{inside}"
    for text in (RAY, service):
        draft, _, scenario = drafted(tmp_path, written(tmp_path, ray__yaml=text))
        [pool] = scenario.fleets[0].pools
        assert draft.sources[0].not_simulated == ["deployment_config: max_ongoing_requests"]
        assert (pool.name, pool.gpu, pool.tensor_parallel_size) == ("qwen", "h100-80gb-sxm", 2)
        assert pool.batching.model_dump()["enable_prefix_caching"] is False
        assert pool.autoscaling is not None
        assert pool.autoscaling.model_dump(include={"metric", "target", "max_replicas"}) == {
            "metric": "outstanding_per_replica",
            "target": 32,
            "max_replicas": 4,
        }


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    ["command: --model Qwen", "entrypoint: [vllm]\n    command: [serve, --model, Qwen"],
    ids=["image", "words"],
)
def test_docker_compose_states_replicas_and_gpus(tmp_path: Path, command: str) -> None:
    text = COMPOSE
    if "[" in command:
        text = text.replace(
            "command: --model Qwen/Qwen3-32B --tensor-parallel-size 2", command + '/Qwen3-32B, -tp, "2"]'
        )
    draft, _, scenario = drafted(tmp_path, written(tmp_path, compose__yaml=text), gpu="h100")
    [pool] = scenario.fleets[0].pools
    assert (pool.name, pool.replicas, pool.tensor_parallel_size, scenario.engine) == ("llm", 2, 2, "vllm-0.11.0")
    assert draft.sources[0].secrets == ["HF_TOKEN"]
    assert draft.sources[0].servers[0].gpus == 2


def test_merge_keys_of_docker_compose_are_read(tmp_path: Path) -> None:
    head, body = COMPOSE.split("    image: ", 1)
    image, _, rest = body.partition("\n")
    text = f"x-common: &common {{image: {image}, environment: {{A_TOKEN: hunter2}}}}\n{head}    <<: *common\n{rest}"
    draft, text, scenario = drafted(tmp_path, written(tmp_path, compose__yaml=text), gpu="h100")
    assert (scenario.engine, "hunter2" in text) == ("vllm-0.11.0", False)
    assert draft.sources[0].secrets == ["HF_TOKEN"]  # own keys win over merged keys


@pytest.mark.slow
def test_a_gpu_that_replaces_the_files_gpu_is_noted(tmp_path: Path) -> None:
    draft, _, _ = drafted(tmp_path, written(tmp_path, kserve__yaml=KSERVE), gpu="h200")
    assert "GPU in the files: h100-80gb-sxm; simulated: h200-141gb-sxm, as --gpu states" in draft.notes
    assert "LLMInferenceService: router.scheduler (see routing of a fleet)" in draft.sources[0].not_simulated


@pytest.mark.slow
def test_values_of_the_production_stack_are_deployments_with_keda(tmp_path: Path) -> None:
    draft, _, scenario = drafted(tmp_path, written(tmp_path, values__yaml=STACK))
    [pool] = scenario.fleets[0].pools
    assert (pool.name, pool.gpu, pool.tensor_parallel_size, pool.replicas) == ("qwen", "h100-80gb-sxm", 2, 2)
    assert (pool.max_model_len, pool.batching.max_num_seqs, scenario.engine) == (16384, 64, "vllm-0.11.0")
    assert pool.autoscaling is not None
    assert pool.autoscaling.model_dump(include={"policy", "metric", "target", "max_replicas"}) == {
        "policy": "keda",
        "metric": "waiting",
        "target": 5,
        "max_replicas": 6,
    }
    assert draft.sources[0].secrets == ["hf_token"]
    assert "routingLogic session (see routing of a fleet)" in draft.sources[0].not_simulated
    assert "qwen: KV in host memory, 20 GB (see kv_tiers of a pool)" in draft.sources[0].not_simulated
    assert "qwen: replicas 2" in draft.sources[0].read


def test_a_runtime_of_the_production_stack_scales_on_running_requests(tmp_path: Path) -> None:
    [pool] = scenario_of(tmp_path, runtime__yaml=RUNTIME).fleets[0].pools
    assert (pool.name, pool.tensor_parallel_size, pool.replicas, pool.max_model_len) == ("qwen", 2, 2, 16384)
    assert pool.autoscaling is not None
    assert pool.autoscaling.model_dump(include={"metric", "target", "min_replicas", "max_replicas"}) == {
        "metric": "running_per_replica",
        "target": 7,
        "min_replicas": 1,
        "max_replicas": 6,
    }


@pytest.mark.slow
def test_components_of_a_dynamo_graph_read_their_config_map(tmp_path: Path) -> None:
    draft, _, scenario = drafted(tmp_path, written(tmp_path, graph__yaml=GRAPH))
    [pool] = scenario.fleets[0].pools
    assert (pool.name, pool.gpu, pool.tensor_parallel_size, pool.replicas) == ("Worker", "h200-141gb-sxm", 2, 3)
    assert (pool.batching.max_num_seqs, scenario.engine) == (64, "sglang")
    assert draft.sources[0].not_simulated == [
        "DYN_ROUTER_MODE kv (see routing of a fleet)",
        "Dynamo: Planner (see autoscaling of a pool)",
    ]
    assert "graph.yaml:7: --tp-size must be a whole number" in refused(
        written(tmp_path, graph__yaml=GRAPH.replace("tp-size: 2", "tp-size: two")), tmp_path / "other.yaml"
    )[0].replace("tensor-parallel-size", "tp-size")
    alone = GRAPH[GRAPH.index("apiVersion: nvidia") :].replace("--config,", "--model-path, Qwen/Qwen3-32B, --config,")
    draft, _, _ = drafted(tmp_path, written(tmp_path, graph__yaml=alone))
    assert "--config (a file of options; name its options in the command)" in draft.sources[0].not_simulated


def test_a_group_of_pods_is_one_server_over_several_hosts(tmp_path: Path) -> None:
    draft, text, scenario = drafted(tmp_path, written(tmp_path, wide__yaml=GROUPS))
    assert [(pool.name, pool.role, pool.replicas, pool.data_parallel_size) for pool in scenario.fleets[0].pools] == [
        ("wide-prefill", "prefill", 6, 16),
        ("wide-decode", "decode", 6, 16),
    ]
    assert (scenario.engine, scenario.fleets[0].pools[0].server) == ("vllm", "dgx-h200")
    assert text.count("network: {link: infiniband-ndr}") == 2
    assert draft.assumed["network"] == "no file states the network between the servers of a replica"
    assert (draft.sources[0].secrets, draft.notes) == ([], [])


NODES = """\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: wide}
spec:
  replicas: 4
  template:
    spec:
      nodeSelector: {gpu: h100-80gb-sxm}
      containers:
        - name: sglang
          image: lmsysorg/sglang:latest
          command: [python3, -m, sglang.launch_server, --model, deepseek-ai/DeepSeek-R1, --tp, "16", --nnodes, "2"]
          env: [{name: KSERVE, value: "tcp://{{ ChildName .ObjectMeta.Name }}:1"}]
          resources: {limits: {nvidia.com/gpu: "8"}}
"""
CHART = """\
image: {repository: vllm/vllm-openai, tag: v0.11.0, command: [vllm, serve, Qwen/Qwen3-32B, -tp, "2"]}
replicaCount: 3
resources: {limits: {nvidia.com/gpu: 2}}
gpuModels: [%s]
autoscaling: {enabled: true, minReplicas: 1, maxReplicas: 4}
"""


def test_pods_of_a_stateful_set_that_share_a_server_are_one_replica(tmp_path: Path) -> None:
    draft, _, scenario = drafted(tmp_path, written(tmp_path, wide__yaml=NODES))
    [pool] = scenario.fleets[0].pools
    assert (pool.replicas, pool.tensor_parallel_size, pool.server, draft.notes) == (2, 16, "dgx-h100", [])
    assert "wide: a replica is 2 pods" in draft.sources[0].read


def test_pods_of_a_ray_cluster_are_one_replica(tmp_path: Path) -> None:
    text = STACK.replace("requestGPU: 2", "requestGPU: 1").replace("replicaCount: 2", "replicaCount: 1")
    text = text.replace(
        "      keda: {enabled: true", "      raySpec: {headNode: {requestGPU: 1}}\n      keda: {enabled: false"
    )
    draft, _, scenario = drafted(tmp_path, written(tmp_path, values__yaml=text))
    [pool] = scenario.fleets[0].pools
    assert (pool.replicas, pool.tensor_parallel_size, draft.notes) == (1, 2, [])
    assert "raySpec: the pods of qwen are one replica" in draft.sources[0].read


@pytest.mark.slow
@pytest.mark.parametrize(("label", "gpu"), [("TYPE_GPU_USED", "h100-80gb-sxm"), ("NVIDIA-L40S", "l40s")])
def test_values_of_vllms_chart_hold_the_command(tmp_path: Path, label: str, gpu: str) -> None:
    draft, _, scenario = drafted(tmp_path, written(tmp_path, values__yaml=CHART % label))
    [pool] = scenario.fleets[0].pools
    assert (pool.gpu, pool.replicas, pool.tensor_parallel_size, scenario.engine) == (gpu, 3, 2, "vllm-0.11.0")
    assert draft.sources[0].not_simulated == ["autoscaling on CPU (see autoscaling of a pool)"]


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        (HPA, "server.yaml:4: scales llama: add the file of these servers"),
        (
            f"{MANIFEST}---\n{HPA.replace('minReplicas', 'minReplcas')}",
            "unknown key minReplcas; did you mean minReplicas?",
        ),
        (f"{MANIFEST}---\n{HPA.replace('2500m', 'some')}", "target must have averageValue, a number"),
        (f"{MANIFEST}---\n{HPA}---\n{HPA}", "is a second autoscaler of llama"),
        (MANIFEST.replace("replicas: 3", "replcas: 3"), "server.yaml:10: unknown key replcas; did you mean replicas?"),
        (KEDA.replace('"16"', "many") + f"---\n{MANIFEST}", "threshold must be a number"),
        (KSERVE.replace("tensor: 2", "tensr: 2"), "unknown key tensr; did you mean tensor?"),
        (DYNAMO.replace("replicas: 3", "replicas: few"), "replicas must be a whole number, not 'few'"),
        (LLM_D.replace("create: false", "crate: false"), "unknown key crate; did you mean create?"),
        (LLM_D.replace("Qwen3-32B", "{{ .Values.model }}"), "server.yaml:1: is a template: render it first"),
        (f"{{% for one in all %}}\n{COMPOSE}", "server.yaml:1: is a template: render it first"),
        (RAY.replace("engine_kwargs", "engine_kwarg"), "did you mean engine_kwargs?"),
        (STACK.replace("maxModelLen", "maxModelLength"), "unknown key maxModelLength; did you mean maxModelLen?"),
        (COMPOSE.replace("--tensor-parallel-size", "--tensor-paralel-size"), "did you mean --tensor-parallel-size?"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: web}\n", "(objects: Service)"),
        (HPA.replace("vllm:num_requests_waiting", "queue"), "server.yaml: states no servers: add their file"),
        (
            COMPOSE.replace("-size 2", "-size 2 --gpu-memory-utilization 1.5"),
            "server.yaml:3: batching.gpu_memory_utilization: must be at most 1",
        ),
    ],
)
def test_what_of_manifests_is_refused(tmp_path: Path, text: str, mistake: str) -> None:
    lines = refused(written(tmp_path, server__yaml=text), tmp_path / "mine.yaml", gpu="h100")
    assert any(mistake in line for line in lines), lines


@pytest.mark.slow
def test_two_servers_need_the_name_of_the_scaled_one(tmp_path: Path) -> None:
    second = MANIFEST[MANIFEST.index("---") :].replace("name: llama", "name: other")
    text = f"{MANIFEST}{second}---\n{HPA.replace('name: llama', 'name: third')}"
    assert (
        "scales third, and the servers are llama, other"
        in refused(written(tmp_path, all__yaml=text), tmp_path / "mine.yaml")[0]
    )


@pytest.mark.parametrize(("text", "number"), [("1500m", 1.5), (7, 7.0), ("-1", None), ("1Gi", None)])
def test_quantities_of_kubernetes(text: object, number: float | None) -> None:
    assert quantity(text) == number


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "listed"),
    [
        (KSERVE.replace("  replicas: 3", "  speculator: {}\n  replicas: 3"), "speculator (see batching.speculative"),
        (STACK.replace("vllmConfig: {", 'vllmConfig: {v0: "1", '), "qwen: v0 (the engine before V1)"),
        (
            RUNTIME.replace("maxReplicas", "minReplicas: 0, maxReplicas"),
            "scaling to zero (min_replicas 1 is simulated)",
        ),
        (RUNTIME, "pollingInterval (its trigger is simulated as an HPA)"),
    ],
)
def test_keys_without_a_counterpart_are_listed(tmp_path: Path, text: str, listed: str) -> None:
    draft, _, _ = drafted(tmp_path, written(tmp_path, file__yaml=text))
    assert any(listed in one for one in draft.sources[0].not_simulated)


@pytest.mark.slow
def test_device_ids_in_one_text_are_several_gpus(tmp_path: Path) -> None:
    text = COMPOSE.replace("count: 2,", "device_ids: ['0,1,2'],")
    draft, _, _ = drafted(tmp_path, written(tmp_path, compose__yaml=text), gpu="h100")
    assert draft.sources[0].servers[0].gpus == 3
