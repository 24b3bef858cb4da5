//! Discrete Gaussian noise from the independently reviewed and proven OpenDP library.
//!
//! The distribution equals that of [`DiscreteGaussian`](crate::privacy::DiscreteGaussian) with the same [`Sigma`]; only the code and the
//! random generator differ. OpenDP uses the system's generator (`rand` 0.7's ChaCha20, seeded by the operating system; the build with
//! OpenSSL is not used here). It takes no seed, so its draws cannot be repeated. It needs the feature `opendp`; without the feature
//! [`OpenDpGaussian::new`] always fails.

mod error;

pub use error::OpenDpError;

use super::noise;
use crate::privacy::Sigma;
use crate::privacy::accountant::SumMechanism;

/// Maximum relative excess of OpenDP's figure over the charged one. OpenDP rounds its exact result up, and the ledger's
/// figure is off by a few units in the last place of a double (2^-52); a larger difference means another mechanism, not
/// rounding.
pub const ROUNDING: f64 = 1e-12;

/// OpenDP's Gaussian measurement on integer vectors with one standard deviation: `make_gaussian` over vectors of `i64`
/// at L2 distance, with zero-concentrated divergence.
#[derive(Clone, Copy, Debug)]
pub struct OpenDpGaussian {
    // The library's value is not `Send` but cheap to create, so it is created on use. The scale converts exactly.
    sigma: Sigma,
}

impl OpenDpGaussian {
    /// # Errors
    /// [`OpenDpError::NotBuilt`], and errors of the library.
    pub fn new(sigma: Sigma) -> Result<Self, OpenDpError> {
        let measurement = Self { sigma };
        measurement.rho(1.0).map(|_| measurement)
    }

    /// zCDP rho of one release, by the library's privacy map.
    ///
    /// # Errors
    /// The library's, for a sensitivity that is not finite or below 0.
    pub fn rho(&self, sensitivity: f64) -> Result<f64, OpenDpError> {
        library::rho(self.sigma.value(), sensitivity)
    }

    /// Checks the library's privacy map against the charged cost of a sum: the noise must cost at most that, up to [`ROUNDING`].
    ///
    /// # Errors
    /// [`OpenDpError::Undercharged`]; as for [`rho`](Self::rho).
    pub fn check(&self, charged: &SumMechanism) -> Result<(), OpenDpError> {
        let (sensitivity, sigma) = (charged.sensitivity, self.sigma.value());
        let (map, charged) = (self.rho(sensitivity)?, charged.rho());
        let is_enough = charged.is_some_and(|charged| map <= charged * (1.0 + ROUNDING));
        if is_enough { Ok(()) } else { Err(OpenDpError::Undercharged { map, sigma, sensitivity, charged }) }
    }

    /// Adds a fresh draw to every word, modulo 2^`modulus_bits` (16 to 32): one invocation of the measurement on the whole vector.
    ///
    /// The words are integers below 2^32 and stand for sums modulo 2^b. Noise commutes with reduction, so it does not matter which
    /// representative is measured; the library saturates at the ends of `i64`, which noise of a standard deviation up to 2^32
    /// reaches with probability below exp(-2^60).
    pub(in crate::privacy) fn add_to(self, words: &mut [u32], modulus_bits: u8) -> Result<(), OpenDpError> {
        let lifted = words.iter().map(|&word| i64::from(word)).collect();
        let noised = library::noised(self.sigma.value(), lifted)?;
        for (word, noised) in words.iter_mut().zip(noised) {
            *word = noise::add(0, noised, modulus_bits);
        }
        Ok(())
    }
}

#[cfg(feature = "opendp")]
mod library {
    use opendp::core::Measurement;
    use opendp::domains::{AtomDomain, VectorDomain};
    use opendp::error::Error;
    use opendp::measurements::make_gaussian;
    use opendp::measures::ZeroConcentratedDivergence;
    use opendp::metrics::L2Distance;

    use super::error::OpenDpError;

    type Gaussian = Measurement<VectorDomain<AtomDomain<i64>>, L2Distance<f64>, ZeroConcentratedDivergence, Vec<i64>>;

    fn gaussian(scale: f64) -> Result<Gaussian, Error> {
        make_gaussian(VectorDomain::new(AtomDomain::<i64>::default()), L2Distance::<f64>::default(), scale, None)
    }

    pub(super) fn rho(scale: f64, sensitivity: f64) -> Result<f64, OpenDpError> {
        gaussian(scale).and_then(|it| it.map(&sensitivity)).map_err(opendp_error)
    }

    pub(super) fn noised(scale: f64, words: Vec<i64>) -> Result<Vec<i64>, OpenDpError> {
        gaussian(scale).and_then(|it| it.invoke(&words)).map_err(opendp_error)
    }

    fn opendp_error(error: Error) -> OpenDpError {
        OpenDpError::Library(error.to_string())
    }
}

#[cfg(not(feature = "opendp"))]
mod library {
    use super::error::OpenDpError;

    pub(super) fn rho(_: f64, _: f64) -> Result<f64, OpenDpError> {
        Err(OpenDpError::NotBuilt)
    }

    pub(super) fn noised(_: f64, _: Vec<i64>) -> Result<Vec<i64>, OpenDpError> {
        Err(OpenDpError::NotBuilt)
    }
}
