//! A golden row for each rule, and invalid requests.

use clap::ValueEnum as _;

use super::figure::Source;
use super::rules::{Precision, STRATEGIES, Sharding};
use super::*;

fn request(parameters: &str) -> Request {
    Request {
        gpus: 8,
        nodes: Some(2),
        gpu: Gpu::H100,
        gpu_memory: None,
        network: Some(Network::Infiniband),
        parameters: count(parameters).unwrap(),
        engine: None,
        target_batch: Some(512),
        batch_per_gpu: None,
        learning_rate: None,
        sequence: None,
        activations: None,
        places: Vec::new(),
    }
}

#[test]
fn each_size_has_its_strategy() {
    let rows = [
        // Parameters, GPUs of a node, nodes, engine: strategy, bytes of state on each GPU, activations computed anew.
        ("125M", 8, 1, None, Sharding::Ddp, 2_000_000_000, false),
        ("1.3B", 8, 1, None, Sharding::Ddp, 20_800_000_000, false),
        ("6.9B", 8, 2, None, Sharding::ShardGradOp, 19_837_500_000, false),
        ("6.9B", 8, 2, Some(Engine::Deepspeed), Sharding::Zero2, 19_837_500_000, false),
        ("7e9", 8, 2, None, Sharding::FullShard, 7_000_000_000, false),
        ("70e9", 8, 4, None, Sharding::FullShard, 35_000_000_000, true),
        ("7e9", 8, 2, Some(Engine::Deepspeed), Sharding::Zero2, 20_125_000_000, false),
        ("70e9", 8, 4, Some(Engine::Deepspeed), Sharding::Zero3, 35_000_000_000, true),
        ("175e9", 8, 8, None, Sharding::Zero3Offload, 10_937_500_000, true),
    ];
    for (parameters, gpus, nodes, engine, sharding, state, recomputes) in rows {
        let planned = plan(&Request { gpus, nodes: Some(nodes), engine, ..request(parameters) }).unwrap();
        let strategy = planned.strategy;
        let found = (strategy.sharding.value, strategy.memory.state.value, strategy.activation_checkpointing.value);
        assert_eq!(found, (sharding, state, recomputes), "{parameters} on {nodes} × {gpus}");
        assert!(strategy.memory.fits.value, "{parameters}: {:?}", strategy.memory);
    }
    let ends = STRATEGIES.each_ref().map(|row| (*row.parameters.start(), *row.parameters.end()));
    assert!(ends.windows(2).all(|pair| pair[0].1 + 1 == pair[1].0), "no size is between two rows: {ends:?}");
}

#[test]
fn a_batch_that_fits_with_recomputed_activations_alone_is_planned_with_them() {
    let rows = [
        // Parameters, examples on a GPU: strategy, activations computed anew, fits.
        ("350M", 32, Sharding::Ddp, false, true),
        ("350M", 64, Sharding::Ddp, true, true),
        ("3B", 4, Sharding::Ddp, false, true),
        ("3B", 8, Sharding::Ddp, true, true),
        ("3B", 64, Sharding::ShardGradOp, true, true),
        ("350M", 4096, Sharding::ShardGradOp, true, false),
    ];
    for (parameters, examples, sharding, recomputes, fits) in rows {
        let wanted = Request { target_batch: None, batch_per_gpu: Some(examples), ..request(parameters) };
        let strategy = plan(&wanted).unwrap().strategy;
        let found = (strategy.sharding.value, strategy.activation_checkpointing.value, strategy.memory.fits.value);
        assert_eq!(found, (sharding, recomputes, fits), "{parameters}, {examples} per GPU: {:?}", strategy.memory);
    }
}

#[test]
fn what_is_offloaded_is_in_the_processors_memory() {
    let planned = plan(&Request { nodes: Some(8), ..request("175e9") }).unwrap();
    assert_eq!(planned.strategy.memory.host.value, 175_000_000_000 * 12 / 8);
    assert_eq!(planned.strategy.engine.value, Engine::Deepspeed);
    assert_eq!(plan(&request("7e9")).unwrap().strategy.memory.host.value, 0);
}

#[test]
fn each_gpu_has_its_precision() {
    let rows = [
        (Gpu::H100, Precision::Bf16, false, 80),
        (Gpu::A100, Precision::Bf16, false, 80),
        (Gpu::V100, Precision::Fp16, true, 32),
        (Gpu::P100, Precision::Fp16, true, 16),
    ];
    assert_eq!(rows.map(|row| row.0), Gpu::value_variants(), "each has a row");
    for (gpu, precision, scaling, gigabytes) in rows {
        let strategy = plan(&Request { gpu, ..request("350M") }).unwrap().strategy;
        assert_eq!(strategy.precision.value, precision);
        assert_eq!(strategy.loss_scaling.value, scaling);
        assert_eq!((strategy.memory.gpu.value, strategy.memory.gpu.from), (gigabytes * 1_000_000_000, Source::Assumed));
    }
    let usual = plan(&Request { nodes: None, network: None, ..request("350M") }).unwrap();
    let found =
        (usual.distributed_config.nodes.value, usual.distributed_config.nodes.from, usual.rdma_config.network.from);
    assert_eq!(found, (1, Source::Assumed, Source::Assumed), "nobody said so");
    let own = plan(&Request { gpu_memory: Some(40_000_000_000), ..request("350M") }).unwrap().strategy.memory;
    assert_eq!((own.gpu.value, own.gpu.from, own.usable.value), (40_000_000_000, Source::User, 36_000_000_000));
}

#[test]
fn a_batch_is_divided_and_sets_the_learning_rate() {
    let rows = [
        // Target, per GPU as given: per GPU, accumulation, learning rate.
        (Some(512), None, 32, 1, 0.004),
        (Some(1024), Some(8), 8, 8, 0.008),
        (Some(128), Some(1), 1, 8, 0.001),
        (None, Some(4), 4, 8, 0.004),
    ];
    for (target_batch, batch_per_gpu, per_gpu, accumulation, rate) in rows {
        let planned = plan(&Request { target_batch, batch_per_gpu, ..request("350M") }).unwrap().batch_configuration;
        assert_eq!((planned.per_gpu.value, planned.accumulation.value), (per_gpu, accumulation));
        assert!((planned.learning_rate.value - rate).abs() < 1e-12, "{planned:?}");
        assert_eq!(planned.warmup_epochs.value, 5);
        assert_eq!(planned.target.from, if target_batch.is_some() { Source::User } else { Source::Assumed });
    }
    // 60 GB for activations of 20 GB each: three would fit, and two divide the 32 of each GPU.
    let tight = Request { activations: Some(20_000_000_000), ..request("350M") };
    let planned = plan(&tight).unwrap().batch_configuration;
    assert_eq!((planned.per_gpu.value, planned.accumulation.value), (2, 16));
    assert_eq!(
        plan(&Request { learning_rate: Some(0.1), ..tight }).unwrap().batch_configuration.learning_rate.from,
        Source::User
    );
    let three = Request { gpus: 3, nodes: Some(1), target_batch: None, ..request("350M") };
    assert_eq!(plan(&three).unwrap().batch_configuration.target.value, 513);
}

#[test]
fn each_network_has_its_variables() {
    let rows = [
        (
            Network::Infiniband,
            &[("NCCL_BUFFSIZE", "8388608"), ("NCCL_IB_DISABLE", "0"), ("NCCL_NET_GDR_LEVEL", "5")][..],
            0.9,
        ),
        (Network::Tcp, &[("NCCL_IB_DISABLE", "1")], 0.7),
    ];
    assert_eq!(rows.map(|row| row.0), Network::value_variants(), "each has a row");
    for (network, variables, efficiency) in rows {
        let planned = plan(&Request { network: Some(network), ..request("7e9") }).unwrap();
        let found: Vec<_> = planned.rdma_config.env_vars.iter().map(|(name, value)| (*name, value.value)).collect();
        assert_eq!(found, variables);
        assert!((planned.performance_targets.scaling_efficiency.value - efficiency).abs() < 1e-12);
    }
}

#[test]
fn checkpoints_are_kept_as_the_rules_say() {
    let planned = plan(&request("7e9")).unwrap().checkpoint_strategy;
    let found = (planned.every_steps.value, planned.every_minutes.value, planned.keep.value, planned.bytes.value);
    assert_eq!(found, (1000, 30, 3, 98_000_000_000));
    assert!(planned.asynchronous.value && planned.places.value.len() > 1);
    let own = Request { places: vec!["/a".to_owned(), "/b".to_owned()], ..request("7e9") };
    assert_eq!(plan(&own).unwrap().checkpoint_strategy.places.from, Source::User);
}

#[test]
fn what_is_expected_follows_from_data_sheets() {
    let targets = plan(&request("7e9")).unwrap().performance_targets;
    // 989e12 · 0.4 · 16 · 0.9 / (6 · 7e9)
    let tokens = 135_634.285_714;
    assert!((targets.tokens_per_s.value - tokens).abs() < 1e-3, "{targets:?}");
    assert!((targets.step_seconds.value - 512.0 * 2048.0 / tokens).abs() < 1e-6, "{targets:?}");
    assert_eq!(targets.tokens_per_s.from, Source::Assumed);
    // Where activations are computed anew: 8 operations for 6, of a model ten times as large.
    let large = plan(&request("70e9")).unwrap();
    assert!(large.strategy.activation_checkpointing.value, "{large:?}");
    assert!((large.performance_targets.tokens_per_s.value - tokens / 10.0 * 6.0 / 8.0).abs() < 1e-3, "{large:?}");
    let alone = Request { gpus: 1, nodes: Some(1), batch_per_gpu: Some(5), target_batch: None, ..request("1e8") };
    let alone = plan(&alone).unwrap();
    assert!((alone.performance_targets.scaling_efficiency.value - 1.0).abs() < 1e-12);
    assert_eq!((alone.batch_configuration.target.value, alone.batch_configuration.accumulation.value), (515, 103));
}

/// Number of figures; each has its source.
fn figures(value: &serde_json::Value) -> usize {
    match value {
        serde_json::Value::Object(fields) if fields.contains_key("value") => {
            assert!(["computed", "assumed", "user"].contains(&fields["from"].as_str().unwrap()), "{fields:?}");
            assert!(fields["from"] == "user" || fields.contains_key("rule"), "{fields:?}");
            1
        }
        serde_json::Value::Object(fields) => fields.values().map(figures).sum(),
        serde_json::Value::Array(steps) => {
            assert!(steps.iter().all(serde_json::Value::is_string));
            0
        }
        other => panic!("a figure that does not say where it comes from: {other}"),
    }
}

#[test]
fn the_document_has_its_keys_and_each_figure_its_source() {
    let document = serde_json::to_value(plan(&request("7e9")).unwrap()).unwrap();
    let mut keys: Vec<_> = document.as_object().unwrap().keys().map(String::as_str).collect();
    let expected = [
        "batch_configuration",
        "checkpoint_strategy",
        "distributed_config",
        "performance_targets",
        "rdma_config",
        "strategy",
        "verification_steps",
    ];
    keys.sort_unstable();
    assert_eq!(keys, expected);
    assert!(figures(&document) > 30);
    assert_eq!(document["rdma_config"]["env_vars"]["NCCL_IB_DISABLE"]["value"], "0");
}

#[test]
fn what_does_not_go_is_told_with_what_would() {
    let told = |request: Request| plan(&request).unwrap_err().to_string();
    assert!(told(Request { target_batch: Some(500), ..request("7e9") }).contains("496 or 512 is one"));
    assert!(told(Request { target_batch: Some(5), ..request("7e9") }).contains("a batch: 16 is one"));
    let uneven = Request { batch_per_gpu: Some(5), ..request("7e9") };
    assert!(told(uneven).contains("no multiple of it: 4 per GPU is"));
    assert!(told(Request { engine: Some(Engine::Pytorch), ..request("71e9") }).contains("say --engine deepspeed"));
    // A script that is only printed.
    let small = plan(&Request { gpus: 1, nodes: Some(1), ..request("70e9") }).unwrap();
    assert!(!small.strategy.memory.fits.value);
    let refused = script(&small, Launcher::Torchrun, "train.py").unwrap_err().to_string();
    assert!(refused.contains("does not fit") && refused.contains("more GPUs or nodes"), "{refused}");
}

#[test]
fn scripts_are_sound_for_the_shell_and_say_what_the_plan_says() {
    for (nodes, launcher) in
        [(1, Launcher::Torchrun), (2, Launcher::Torchrun), (1, Launcher::Slurm), (2, Launcher::Slurm)]
    {
        let text =
            script(&plan(&Request { nodes: Some(nodes), ..request("7e9") }).unwrap(), launcher, "train.py --fast")
                .unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.sh");
        std::fs::write(&path, &text).unwrap();
        let checked = std::process::Command::new("sh").arg("-n").arg(&path).status().unwrap();
        assert!(checked.success(), "{text}");
        for words in [
            "STRATEGY=FULL_SHARD",
            "PRECISION=bf16",
            "LEARNING_RATE=0.004",
            "NCCL_IB_DISABLE=0",
            "train.py --fast",
            "--nproc-per-node 8",
        ] {
            assert!(text.contains(words), "{words} is not in\n{text}");
        }
    }
    let text = script(&plan(&request("7e9")).unwrap(), Launcher::Kubernetes, "train.py").unwrap();
    for words in [
        "completions: 2",
        "nvidia.com/gpu: 8",
        "name: NCCL_NET_GDR_LEVEL, value: \"5\"",
        "--node-rank \"\\$JOB_COMPLETION_INDEX\"",
    ] {
        assert!(text.contains(words), "{words} is not in\n{text}");
    }
    assert!(!text.contains('\t'));
    let mut checks = std::process::Command::new("sh").args(["-n", "-c", &text]).spawn().unwrap();
    assert!(checks.wait().unwrap().success(), "{text}");
}

/// The script of one node, with a `torchrun` that prints its arguments.
#[test]
fn a_script_runs_its_launcher() {
    use std::os::unix::fs::PermissionsExt as _;

    let folder = tempfile::tempdir().unwrap();
    let (launcher, path) = (folder.path().join("torchrun"), folder.path().join("run.sh"));
    std::fs::write(&launcher, "#!/bin/sh\necho \"$STRATEGY $BATCH_PER_GPU $@\"\n").unwrap();
    std::fs::set_permissions(&launcher, std::fs::Permissions::from_mode(0o755)).unwrap();
    let planned = plan(&Request { nodes: Some(1), ..request("350M") }).unwrap();
    std::fs::write(&path, script(&planned, Launcher::Torchrun, "train.py").unwrap()).unwrap();
    let ran = std::process::Command::new("/bin/sh").arg(&path).env("PATH", folder.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        "DDP 32 --standalone --nproc-per-node 8 --max-restarts 0 train.py\n"
    );
}
