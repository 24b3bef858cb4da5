//! Differential privacy: mechanisms, accounting, and separate types for exact and published sums.

pub mod accountant;
pub mod audit;
mod codec;
pub mod ledger;
mod mechanisms;
mod planning;
pub mod release;
mod sample;
pub mod sum;
mod tally;

pub use codec::adaptive_clip::next_clip;
pub use codec::inspect::{ImplausiblePrivateUpdate, PrivateInspector};
pub use codec::private_codec::{
    PrivateCodec, PrivateCodecError, PrivateCodecParams, PrivateDecodeError, PrivateDecoder, PrivateEncodeError,
    PrivateMean,
};
pub use codec::{adaptive_clip, inspect, private_codec, rotation};
pub use ledger::{Budget, Ledger, LedgerError, LedgerRow, SealedRow, Sealer};
pub use mechanisms::banded::{BandedMatrix, BandedNoise, Bands};
pub use mechanisms::discrete_gaussian::{DiscreteGaussian, Sigma};
pub use mechanisms::noise::{NoiseError, NoiseLaw, NoiseSampler, NoiseShares, TreeNoise};
pub use mechanisms::opendp::{OpenDpError, OpenDpGaussian};
pub use mechanisms::place_seeds::PlaceSeeds;
pub use mechanisms::skellam::{Skellam, Variance};
pub use mechanisms::{banded, discrete_gaussian, noise, opendp, skellam};
pub use planning::choices::Choice;
pub use planning::plan;
pub use planning::plan::{Goal, Plan, PlanError, PlanRequest, PlanSampling, plan};
pub use planning::task::TaskFacts;
pub use planning::warnings::promise_warnings;
pub use release::{BadRelease, Cost, Epsilons, NoServerEpsilon, Release, Sampled};
pub use sample::bernoulli::{BadRate, SamplingRate};
pub use sum::{ExactSum, NoisedSum, SumError, SumHeader};
