//! The settings of a participant, as an app gives them.

use client_sdk::runner::Options;
use zeroize::Zeroizing;

use crate::error::TributaryError;

/// Reads them from JSON; the text, which may have a token, is erased.
pub(crate) fn read(options: String) -> Result<Options, TributaryError> {
    let text = Zeroizing::new(options);
    serde_json::from_slice(text.as_bytes()).map_err(|error| {
        // Omits "at line 1 column 9": the app's author cannot see that line.
        let text = error.to_string();
        TributaryError::Configuration(text.split(" at line ").next().unwrap_or_default().to_owned())
    })
}
