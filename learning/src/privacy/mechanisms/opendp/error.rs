//! Reasons OpenDP cannot draw noise.

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenDpError {
    /// The program was built without OpenDP.
    #[error(
        "is \"opendp\", and this program was built without it: build it with `--features opendp`, or leave privacy.sampler out for \
         this project's own sampler"
    )]
    NotBuilt,
    /// OpenDP's noise costs more than the ledger charges.
    #[error(
        "is \"opendp\", whose privacy map gives rho = {map} for noise of standard deviation {sigma} at sensitivity \
         {sensitivity}, and the ledger would charge {charged:?}: the two must agree up to rounding"
    )]
    Undercharged {
        /// Rho by OpenDP's privacy map.
        map: f64,
        /// Standard deviation of the noise.
        sigma: f64,
        /// L2 sensitivity of the integers.
        sensitivity: f64,
        /// Rho by the ledger; `None` if the charge has none.
        charged: Option<f64>,
    },
    /// An error of the library.
    #[error("OpenDP: {0}")]
    Library(String),
}
