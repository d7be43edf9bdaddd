"""Schedulers: which requests are in the next step of a rank, by the rules of each engine.

waiting_queue   order of waiting requests: first come first served, priority, fair share, LoRA adapter
scheduler       the steps of one rank under any policy
vllm            vLLM's V1 scheduler, with and without asynchronous scheduling
speculative     vLLM's scheduler with drafted tokens
kv_groups       vLLM's scheduler with groups of KV caches that share one pool
pipeline        vLLM's scheduler with several batches in flight over the stages of a pipeline
prompt_pacing   prefill intervals and the chunk limit of long prompts in vLLM's scheduler
prefill_first   vLLM V0 and SGLang: prompts before tokens
reserve         admission only with the KV blocks of the whole request
static          static batches
"""
