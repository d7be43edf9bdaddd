"""Valid keys of manifests by format, separated by spaces, for the detection of misspelt keys."""

CONTAINER = (
    "name image command args env envFrom resources ports volumeMounts volumeDevices livenessProbe readinessProbe "
    "startupProbe lifecycle securityContext imagePullPolicy workingDir stdin stdinOnce tty terminationMessagePath "
    "terminationMessagePolicy restartPolicy resizePolicy modelCommand mountModelVolume extraConfig modelFormat runtime "
    "storageUri storage protocolVersion runtimeVersion"
)
"""Keys of a container, also of llm-d and of KServe's predictors."""
POD = (
    "containers initContainers ephemeralContainers nodeSelector affinity tolerations volumes serviceAccountName "
    "serviceAccount imagePullSecrets restartPolicy terminationGracePeriodSeconds securityContext hostNetwork hostIPC "
    "hostPID runtimeClassName schedulerName priorityClassName dnsPolicy topologySpreadConstraints nodeName "
    "resourceClaims enableServiceLinks shareProcessNamespace hostname subdomain automountServiceAccountToken"
)
"""Keys of a pod that are checked for misspellings."""
DEPLOYMENT = "replicas selector template strategy minReadySeconds revisionHistoryLimit progressDeadlineSeconds paused"
"""Keys of a Deployment's spec."""
LLM_INFERENCE_SERVICE = (
    "model replicas parallelism router template worker prefill baseRefs scaling storageInitializer tracing workload "
    "speculator"
)
"""Keys of the spec of an LLMInferenceService, and of its `prefill`."""
DYNAMO_SERVICE = (
    "dynamoNamespace componentType subComponentType serviceName replicas resources envs envFromSecret extraPodSpec "
    "extraPodMetadata annotations labels autoscaling livenessProbe readinessProbe startupProbe multinode pvcs "
    "volumeMounts sharedMemory ingress modelRef scalingAdapter globalDynamoNamespace"
)
"""Keys of a service in a Dynamo graph."""
SCALING_RULES = "stabilizationWindowSeconds selectPolicy policies tolerance"
"""Keys of one direction of an HPA's behaviour."""
HPA = "scaleTargetRef minReplicas maxReplicas metrics behavior targetCPUUtilizationPercentage"
"""Keys of an HPA's spec."""
SCALED_OBJECT = (
    "scaleTargetRef pollingInterval initialCooldownPeriod cooldownPeriod idleReplicaCount minReplicaCount "
    "maxReplicaCount fallback advanced triggers"
)
"""Keys of a ScaledObject's spec."""
LLM_D_VALUES = (
    "modelArtifacts decode prefill routing multinode accelerator fullnameOverride nameOverride serviceAccountOverride "
    "schedulerName dra extraObjects tracing requester annotations kind"
)
"""Keys of the values of llm-d's chart."""
LLM_D_ROLE = (
    "create replicas parallelism containers initContainers extraConfig acceleratorTypes monitoring volumes "
    "tolerations nodeSelector affinity annotations podAnnotations podLabels labels subGroupPolicy subGroupExclusive "
    "autoscaling hostIPC hostPID enableService schedulerName resourceClaims"
)
"""Keys of `decode` and `prefill` of llm-d's chart."""
COMPOSE_SERVICE = (
    "image command entrypoint environment env_file deploy ports expose volumes runtime ipc shm_size ulimits gpus "
    "devices restart container_name depends_on networks network_mode healthcheck build platform privileged cap_add "
    "security_opt logging labels profiles scale working_dir user hostname extra_hosts mem_limit cpus init stdin_open "
    "tty secrets configs pull_policy stop_grace_period dns sysctls tmpfs"
)
"""Keys of a service of docker compose."""
RAY_MODEL = (
    "model_loading_config llm_engine engine_kwargs accelerator_type deployment_config lora_config runtime_env "
    "resources_per_bundle placement_group_config log_engine_metrics experimental_configs server_cls "
    "callback_config"
)
"""Keys of an entry of `llm_configs`."""
STACK_MODEL = (
    "name enabled annotations podAnnotations labels podLabels serviceAccountName priorityClassName "
    "runtimeClassName repository tag imagePullSecret imagePullPolicy modelURL modelRevision chatTemplate "
    "chatTemplateConfigMap replicaCount resources requestCPU requestMemory requestGPU requestGPUType "
    "requestGPUMem requestGPUMemPercentage requestGPUCores limitCPU limitMemory limitGPUMem limitGPUMemPercentage "
    "limitGPUCores pvcStorage pvcAccessMode storageClass pvcMatchLabels pvcLabels pvcAnnotations "
    "pvcExistingClaimName extraVolumes extraVolumeMounts initContainer vllmConfig lmcacheConfig env envFromSecret "
    "nodeSelector nodeSelectorTerms nodeName affinity tolerations tolerationsPolicy shmSize enableLoRA keda "
    "raySpec extraPorts enableTool toolCallParser maxModelLen maxNumSeqs dtype sidecarConfig strategy "
    "podDisruptionBudget securityContext containerSecurityContext"
)
"""Keys of an entry of `modelSpec` in the values of vLLM's production stack."""
STACK_ENGINE = (
    "v0 v1 port env enablePrefixCaching enableChunkedPrefill maxModelLen dtype tensorParallelSize pipelineParallelSize "
    "maxNumSeqs gpuMemoryUtilization maxLoras runner convert extraArgs prometheusMultiprocDir"
)
"""Keys of `vllmConfig` in vLLM's production stack."""
STACK_RUNTIME = "model vllmConfig lmCacheConfig storageConfig deploymentConfig autoscalingConfig"
"""Keys of the spec of a VLLMRuntime."""
DYNAMO_COMPONENT = (
    "name type replicas podTemplate multinode sharedMemorySize scalingAdapter modelRef componentName compilationCache "
    "globalDynamoNamespace frontendSidecar experimental eppConfig"
)
"""Keys of a component in a Dynamo graph of v1beta1."""
BEHAVIOR = "scaleUp scaleDown"
"""Keys of an HPA's behaviour."""
SCALING_POLICY = "type value periodSeconds"
"""Keys of a scaling policy."""
RAY_LOADING = "model_id model_source tokenizer_source"
"""Keys of `model_loading_config`."""
RAY_SCALING = "initial_replicas metrics_interval_s upscaling_factor downscaling_factor smoothing_factor"
"""Keys of `autoscaling_config` without a counterpart in a scenario."""
