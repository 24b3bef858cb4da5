//! The rules, as data. Each row has a golden row in the tests.

use std::ops::RangeInclusive;

use clap::ValueEnum;
use serde::Serialize;

/// The bytes that training with Adam in mixed precision keeps of each parameter: weights and gradients in 16 bits; weights and both
/// moments in 32.
pub(super) const WEIGHT_BYTES: u64 = 2;
pub(super) const GRADIENT_BYTES: u64 = 2;
pub(super) const OPTIMIZER_BYTES: u64 = 12;
/// The part of a GPU's memory that is planned for; the rest is fragmentation, buffers of collectives and the driver.
pub(super) const USABLE: f64 = 0.9;
/// The learning rate grows in proportion to the batch: this one for that many.
pub(super) const REFERENCE_BATCH: u64 = 512;
pub(super) const REFERENCE_RATE: f64 = 0.004;
pub(super) const WARMUP_EPOCHS: u64 = 5;
pub(super) const CHECKPOINT_STEPS: u64 = 1000;
pub(super) const CHECKPOINT_MINUTES: u64 = 30;
pub(super) const CHECKPOINTS_KEPT: u64 = 3;
/// The part of its peak that a GPU is expected to compute at.
pub(super) const UTILISATION: f64 = 0.4;

/// A kind of GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Gpu {
    H100,
    A100,
    V100,
    P100,
}

/// A GPU's data sheet.
pub(super) struct GpuRow {
    pub(super) memory: u64,
    pub(super) precision: Precision,
    /// In this precision, without sparsity, in 10¹² operations per second.
    pub(super) peak_tflops: f64,
}

impl Gpu {
    pub(super) fn row(self) -> GpuRow {
        match self {
            Self::H100 => GpuRow { memory: 80_000_000_000, precision: Precision::Bf16, peak_tflops: 989.0 },
            Self::A100 => GpuRow { memory: 80_000_000_000, precision: Precision::Bf16, peak_tflops: 312.0 },
            Self::V100 => GpuRow { memory: 32_000_000_000, precision: Precision::Fp16, peak_tflops: 125.0 },
            Self::P100 => GpuRow { memory: 16_000_000_000, precision: Precision::Fp16, peak_tflops: 21.2 },
        }
    }
}

/// The number format of passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub(crate) enum Precision {
    /// As wide as 32 bits, so the loss is not scaled.
    Bf16,
    /// Small gradients vanish in it: the loss is scaled.
    Fp16,
}

impl Precision {
    pub(super) fn loss_scaling(self) -> bool {
        self == Self::Fp16
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::Fp16 => "fp16",
        }
    }
}

impl From<Precision> for &'static str {
    fn from(precision: Precision) -> Self {
        precision.name()
    }
}

/// What machines are connected by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    Infiniband,
    Tcp,
}

/// Settings of a network, and its expected speed.
pub(super) struct NetworkRow {
    pub(super) variables: &'static [(&'static str, &'static str)],
    /// One process's step / step / processes, over several machines.
    pub(super) efficiency: f64,
}

impl Network {
    pub(super) fn row(self) -> NetworkRow {
        match self {
            Self::Infiniband => NetworkRow {
                variables: &[("NCCL_IB_DISABLE", "0"), ("NCCL_NET_GDR_LEVEL", "5"), ("NCCL_BUFFSIZE", "8388608")],
                efficiency: 0.9,
            },
            Self::Tcp => NetworkRow { variables: &[("NCCL_IB_DISABLE", "1")], efficiency: 0.7 },
        }
    }
}

/// Who shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Engine {
    /// PyTorch's own DDP and FSDP.
    Pytorch,
    /// DeepSpeed's ZeRO (Rajbhandari et al. 2020).
    Deepspeed,
}

/// The state that is sharded over GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub(crate) enum Sharding {
    /// Without sharding: each process holds all.
    Ddp,
    /// Gradients and the optimizer's state.
    ShardGradOp,
    /// These and the weights.
    FullShard,
    /// The sharding of `SHARD_GRAD_OP`, by DeepSpeed.
    Zero2,
    /// The sharding of `FULL_SHARD`, by DeepSpeed.
    Zero3,
    /// The same, with the optimizer's state in the memory of the processor.
    Zero3Offload,
}

impl Sharding {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ddp => "DDP",
            Self::ShardGradOp => "SHARD_GRAD_OP",
            Self::FullShard => "FULL_SHARD",
            Self::Zero2 => "ZERO_2",
            Self::Zero3 => "ZERO_3",
            Self::Zero3Offload => "ZERO_3_OFFLOAD",
        }
    }
}

impl From<Sharding> for &'static str {
    fn from(sharding: Sharding) -> Self {
        sharding.name()
    }
}

/// Strategies for models of a size; the first that fits is taken, otherwise the last.
pub(super) struct StrategyRow {
    pub(super) parameters: RangeInclusive<u64>,
    pub(super) pytorch: &'static [Sharding],
    pub(super) deepspeed: &'static [Sharding],
}

pub(super) const STRATEGIES: [StrategyRow; 3] = [
    StrategyRow {
        parameters: 1..=6_999_999_999,
        pytorch: &[Sharding::Ddp, Sharding::ShardGradOp],
        deepspeed: &[Sharding::Ddp, Sharding::Zero2],
    },
    StrategyRow {
        parameters: 7_000_000_000..=70_000_000_000,
        pytorch: &[Sharding::FullShard],
        deepspeed: &[Sharding::Zero2, Sharding::Zero3],
    },
    // PyTorch's engine lacks a strategy for these.
    StrategyRow { parameters: 70_000_000_001..=u64::MAX, pytorch: &[], deepspeed: &[Sharding::Zero3Offload] },
];
