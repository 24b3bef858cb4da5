//! The arithmetic of a round, identical on client and coordinator: clip, quantize, sum privately, optimize. Pure.
//!
//! A device turns its training result into an [`Update`], and the [`Codec`] turns it into integers. The coordinator adds the integers,
//! releases the sum, decodes the mean and takes a step of the server optimizer. Both sides run this code, so results must be bit-identical
//! everywhere: only IEEE 754 `+ - * /` and `sqrt`, in a fixed order; `exp` and similar functions of `libm` where privacy needs them; and
//! every random draw from the caller's generator. Only privacy loss distributions use an FFT, because the parties need not agree on them
//! bit for bit. The crate has no access to I/O, clocks and devices, and is independent of masks, participants and rounds.

pub mod adapters;
pub mod analytics;
pub mod checkpoint;
pub mod clip;
pub mod compress;
pub mod contribution;
pub mod initialize;
pub mod metrics;
pub mod optimizer;
pub mod parameters;
pub mod partition;
pub mod privacy;
pub mod proximal;
pub mod quantize;
pub mod robust;
pub mod update;
mod vectorized;

pub use adapters::{AdapterError, Adapters};
pub use analytics::{Analysis, AnalyticsError, AnalyticsSpec, SumCodec, Table};
pub use checkpoint::CheckpointError;
pub use clip::{Clipping, FixedClip};
pub use compress::{CodecError, CompactUpdate, Decoded, Distortion, Encoded, Residual, Upload, WeightedCodec};
pub use contribution::{Controls, Fairness, FairnessError, FedNova, FedNovaError, QFfl, Scaffold, ScaffoldError};
pub use initialize::{InitError, initialize};
pub use metrics::MetricValue;
pub use optimizer::{OptimizerState, StateError, StepError};
pub use parameters::{Layout, LayoutError, Parameters, TensorSpec, WrongLayout, WrongLength};
pub use partition::{Partition, PatternError, Patterns};
pub use privacy::{ExactSum, NoisedSum, SumError, SumHeader};
pub use quantize::{
    Codec, DecodeError, EncodeError, HeadroomError, ImplausibleUpdate, Inspector, MeanUpdate, QuantizationParams,
    QuantizedUpdate, SumTail,
};
pub use update::Update;
