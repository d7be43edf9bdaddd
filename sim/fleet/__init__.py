"""The simulated cluster on SimPy's clock; no other room imports simpy.

Modules in reading order:

    run             `run_fleet`: the parts of a plan that are simulated apart, and their merged logs
    fleet           requests, router, replicas and meters of one cluster
    arrivals        the clock, and the sources that send requests
    replica         states of a replica and what each means; requests stranded on a failed one
    pool            the engines of a pool, by batching policy and parallelism
    routing         the routing policies among the replicas that are open
    admission       tenants' limits, the gateway's rules and queue limits, before an engine has a request
    retries         clients that give up or send a request again
    kv_transfer     prompts computed on one replica and answered by another
    scaling, autoscaling
                    starting and stopping replicas, by schedule or by control loop
    failures        failures, maintenance and spot interruptions
    caches          what routers know of prefix caches, and what replicas forget
    services        several services on one fleet
    request_columns requests of independent replicas as arrays
    interrupts      signals and other threads beside a compiled event loop
    metering        meter readings turned into intervals
    saturation      steps of an engine at full load, repeated under other step times
    warmup          the end of the start of a run (MSER-5)
"""
