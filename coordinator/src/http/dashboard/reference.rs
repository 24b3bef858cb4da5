//! `GET /docs/api`: the API reference, Swagger UI over `/openapi.json`.

use std::io::{self, Read as _};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::read::GzDecoder;

use super::assets::Asset;

macro_rules! file {
    ($name:literal) => {
        include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../api-reference/", $name))
    };
}

/// The page and its files by name.
pub(super) struct Reference {
    pub(super) page: Asset,
    files: [(&'static str, Asset); 5],
}

impl Reference {
    /// The embedded files.
    ///
    /// # Errors
    /// Decompression failed, which is only possible without memory.
    pub(super) fn get() -> Result<&'static Self, &'static io::Error> {
        static REFERENCE: OnceLock<io::Result<Reference>> = OnceLock::new();
        REFERENCE.get_or_init(Self::read).as_ref()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Asset> {
        self.files.iter().find(|(known, _)| *known == name).map(|(_, asset)| asset)
    }

    fn read() -> io::Result<Self> {
        let own = |name, content| Asset::new(name, Bytes::from_static(content));
        Ok(Self {
            page: own("index.html", file!("index.html"))?,
            files: [
                ("main.js", own("main.js", file!("main.js"))?),
                ("reference.css", own("reference.css", file!("reference.css"))?),
                ("swagger-ui-bundle.js", unpacked("swagger-ui-bundle.js", file!("vendor/swagger-ui-bundle.js.gz"))?),
                ("swagger-ui.css", unpacked("swagger-ui.css", file!("vendor/swagger-ui.css.gz"))?),
                // Applies the dashboard's theme.
                ("theme.js", own("theme.js", file!("../dashboard/theme.js"))?),
            ],
        })
    }
}

/// Unpacks an embedded compressed file.
fn unpacked(name: &str, gzip: &'static [u8]) -> io::Result<Asset> {
    let mut plain = Vec::new();
    GzDecoder::new(gzip).read_to_end(&mut plain)?;
    Ok(Asset::packed(name, plain.into(), Bytes::from_static(gzip)))
}
