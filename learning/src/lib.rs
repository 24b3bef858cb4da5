//! Clip, quantize, sum privately, optimize: the arithmetic both sides must agree on. Pure.
//!
//! A device turns what it trained into an [`Update`] and the [`Codec`] turns that into integers; the coordinator adds
//! integers, releases the sum, decodes the mean and steps the server optimizer. Both sides run this code, so it must give
//! the same bits everywhere: only `+ - * /` and `sqrt` of IEEE 754, in a fixed order, `exp` and its kin from `libm` where
//! privacy needs them (loss distributions alone, which nobody has to agree on, use an FFT), and every random draw comes from a
//! generator the caller passes in. No I/O, no clock, no devices; masks, participants and rounds are unknown here.

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
pub use clip::FixedClip;
pub use compress::{CodecError, CompactUpdate, Decoded, Distortion, Encoded, Residual, UpdateCodec, Upload};
pub use contribution::{Controls, Fairness, FairnessError, FedNova, FedNovaError, QFfl, Scaffold, ScaffoldError};
pub use initialize::{InitError, initialize};
pub use metrics::MetricValue;
pub use optimizer::{OptimizerState, StateError, StepError};
pub use parameters::{Layout, LayoutError, Parameters, TensorSpec, WrongLayout, WrongLength};
pub use partition::{Partition, PatternError, Patterns};
pub use privacy::{ExactSum, NoisedSum, SumError};
pub use quantize::{
    Codec, DecodeError, EncodeError, HeadroomError, ImplausibleUpdate, Inspector, MeanUpdate, QuantizationParams,
    QuantizedUpdate,
};
pub use update::Update;
