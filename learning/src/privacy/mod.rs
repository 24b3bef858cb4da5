//! What stands between an exact sum and the world.

pub mod accountant;
pub mod adaptive_clip;
pub mod discrete_gaussian;
pub mod noise;
pub mod private_codec;
pub mod rotation;
mod sample;
pub mod skellam;
pub mod sum;

pub use adaptive_clip::AdaptiveClip;
pub use discrete_gaussian::{DiscreteGaussian, Sigma};
pub use noise::{NoiseError, NoiseLaw, NoiseSampler, NoiseShares, TreeNoise};
pub use private_codec::{
    PrivateCodec, PrivateCodecError, PrivateCodecParams, PrivateDecodeError, PrivateEncodeError, PrivateMean,
};
pub use sample::bernoulli::{BadRate, SamplingRate};
pub use skellam::{Skellam, Variance};
pub use sum::{ExactSum, NoisedSum, SumError};
