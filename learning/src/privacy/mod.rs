//! Differential privacy: mechanisms, accounting and the types that separate an exact sum from a published one.

pub mod accountant;
pub mod adaptive_clip;
pub mod audit;
pub mod banded;
mod choices;
pub mod discrete_gaussian;
mod draws;
pub mod inspect;
pub mod ledger;
pub mod noise;
pub mod opendp;
mod place_seeds;
pub mod plan;
mod planned;
pub mod private_codec;
pub mod release;
pub mod rotation;
mod sample;
pub mod skellam;
pub mod sum;
mod task;

pub use adaptive_clip::next_clip;
pub use banded::{BandedMatrix, BandedNoise, Bands};
pub use choices::Choice;
pub use discrete_gaussian::{DiscreteGaussian, Sigma};
pub use inspect::{ImplausiblePrivateUpdate, PrivateInspector};
pub use ledger::{Budget, Ledger, LedgerError, LedgerRow, SealedRow, Sealer};
pub use noise::{NoiseError, NoiseLaw, NoiseSampler, NoiseShares, TreeNoise};
pub use opendp::{OpenDpError, OpenDpGaussian};
pub use place_seeds::PlaceSeeds;
pub use plan::{Goal, Plan, PlanError, PlanRequest, PlanSampling, plan};
pub use private_codec::{
    PrivateCodec, PrivateCodecError, PrivateCodecParams, PrivateDecodeError, PrivateDecoder, PrivateEncodeError,
    PrivateMean,
};
pub use release::{BadRelease, Cost, Epsilons, NoServerEpsilon, Release, Sampled};
pub use sample::bernoulli::{BadRate, SamplingRate};
pub use skellam::{Skellam, Variance};
pub use sum::{ExactSum, NoisedSum, SumError, SumHeader};
pub use task::TaskFacts;
