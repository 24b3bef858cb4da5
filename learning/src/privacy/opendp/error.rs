//! Why OpenDP draws nothing.

/// Why OpenDP draws nothing.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenDpError {
    /// The program has none.
    #[error(
        "is \"opendp\", and this program was built without it: build it with `--features opendp`, or leave privacy.sampler out for \
         this project's own sampler"
    )]
    NotBuilt,
    /// What it draws costs more than is charged.
    #[error(
        "is \"opendp\", whose privacy map gives rho = {map} for noise of standard deviation {sigma} at sensitivity \
         {sensitivity}, and the ledger would charge {charged:?}: the two must agree up to rounding"
    )]
    Undercharged {
        /// By OpenDP's map.
        map: f64,
        /// Of the noise.
        sigma: f64,
        /// In L2, of the integers.
        sensitivity: f64,
        /// By the ledger; nothing if it has no such figure for what it charges.
        charged: Option<f64>,
    },
    /// It says so itself.
    #[error("OpenDP: {0}")]
    Library(String),
}
