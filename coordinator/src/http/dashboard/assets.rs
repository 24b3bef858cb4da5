//! The files of `dashboard/`, embedded and compressed.

use std::collections::BTreeMap;
use std::io::{self, Write as _};
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

macro_rules! embedded {
    ($($name:literal),+ $(,)?) => {
        &[$(($name, include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboard/", $name)))),+]
    };
}

/// The page; refers to the other files by [`VERSION`].
const PAGE: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../dashboard/index.html"));
/// Placeholder for the version in the page.
const VERSION: &str = "VERSION";
/// Every other file, by its path below `dashboard/`.
const FILES: &[(&str, &[u8])] = embedded!(
    "dashboard.css",
    "icon.svg",
    "lib/api.js",
    "lib/chart.js",
    "lib/code.js",
    "lib/csv.js",
    "lib/format.js",
    "lib/html.js",
    "lib/live.js",
    "lib/models.js",
    "lib/regions.js",
    "lib/resource.js",
    "lib/router.js",
    "lib/safetensors.js",
    "lib/sha256.js",
    "lib/toml.js",
    "lib/ui.js",
    "lib/upload.js",
    "main.js",
    "pages/audit.js",
    "pages/compare.js",
    "pages/create-task.js",
    "pages/devices.js",
    "pages/enrol.js",
    "pages/join.js",
    "pages/ledger.js",
    "pages/model-kind.js",
    "pages/models.js",
    "pages/participant.js",
    "pages/participants.js",
    "pages/privacy.js",
    "pages/provenance.js",
    "pages/region.js",
    "pages/round.js",
    "pages/serving.js",
    "pages/sign-in.js",
    "pages/table-columns.js",
    "pages/task-charts.js",
    "pages/task-files.js",
    "pages/task.js",
    "pages/tasks.js",
    "pages/timeline.js",
    "pages/tokens.js",
    "pages/version-diff.js",
    "theme.js",
    "vendor/preact.js",
    "vendor/qrcode.js",
);

/// A file in both encodings.
pub(super) struct Asset {
    pub(super) media: &'static str,
    pub(super) plain: Bytes,
    pub(super) gzip: Bytes,
    /// Quoted digest of the plain content; shared by both encodings.
    pub(super) etag: String,
}

/// All files.
pub(super) struct Assets {
    pub(super) page: Asset,
    /// Digest of all files except the page; part of their URLs.
    pub(super) version: String,
    files: BTreeMap<&'static str, Asset>,
}

impl Assets {
    /// The embedded files.
    ///
    /// # Errors
    /// Compression failed, which is only possible without memory.
    pub(super) fn get() -> Result<&'static Self, &'static io::Error> {
        static ASSETS: OnceLock<io::Result<Assets>> = OnceLock::new();
        ASSETS.get_or_init(Self::compressed).as_ref()
    }

    pub(super) fn find(&self, name: &str) -> Option<&Asset> {
        self.files.get(name)
    }

    fn compressed() -> io::Result<Self> {
        let mut files = BTreeMap::new();
        let mut digests = String::new();
        for (name, content) in FILES {
            let asset = Asset::new(name, Bytes::from_static(content))?;
            digests.extend([name, asset.etag.as_str()]);
            files.insert(*name, asset);
        }
        let version = short_digest(digests.as_bytes());
        let page = String::from_utf8_lossy(PAGE).replace(VERSION, &version);
        Ok(Self { page: Asset::new("index.html", page.into())?, version, files })
    }
}

impl Asset {
    /// Compresses a file. Its name determines the media type.
    pub(super) fn new(name: &str, plain: Bytes) -> io::Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        encoder.write_all(&plain)?;
        Ok(Self::packed(name, plain, encoder.finish()?.into()))
    }

    /// Creates an asset from compressed content.
    pub(super) fn packed(name: &str, plain: Bytes, gzip: Bytes) -> Self {
        let etag = format!("\"{}\"", short_digest(&plain));
        Self { media: media(name), plain, gzip, etag }
    }
}

/// 64 bits of a SHA-256, enough to tell releases apart.
fn short_digest(bytes: &[u8]) -> String {
    hex::encode(&crate::digest(bytes).0[..8])
}

fn media(name: &str) -> &'static str {
    match name.rsplit_once('.').map(|(_, ending)| ending) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Lists the browser's files under `folder`.
    fn there(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let (path, name) = entry.map(|entry| (entry.path(), entry.file_name().into_string().unwrap())).unwrap();
            if path.is_dir() {
                if prefix.is_empty() && name == "tests" {
                    continue;
                }
                there(&path, &format!("{prefix}{name}/"), found);
            } else if media(&name) != "application/octet-stream" && name != "index.html" {
                found.insert(format!("{prefix}{name}"));
            }
        }
    }

    #[test]
    fn every_file_of_the_dashboard_is_embedded() {
        let mut found = BTreeSet::new();
        there(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../dashboard"), "", &mut found);
        let embedded: BTreeSet<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(embedded, found);
    }

    #[test]
    fn nothing_is_written_into_the_page_that_its_policy_forbids() {
        for (name, content) in FILES.iter().chain([&("index.html", PAGE)]) {
            let text = String::from_utf8_lossy(content);
            if name.starts_with("vendor/") {
                continue;
            }
            for forbidden in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"]
            {
                assert!(!text.contains(forbidden), "{name}: {forbidden}");
            }
            for forbidden in [" style=", " onclick=", " onload=", "<script>", "<style", "http://", "https://"] {
                let allowed = text.replace("http://www.w3.org/2000/svg", "");
                assert!(!allowed.contains(forbidden), "{name}: {forbidden}");
            }
        }
    }

    #[test]
    fn the_page_names_what_is_embedded() {
        let page = String::from_utf8_lossy(PAGE);
        let named: Vec<_> = page.split("assets/VERSION/").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        // A browser discovers unlisted modules one import after the other. The QR encoder is loaded on demand.
        let is_needed = |name: &str| media(name).starts_with("text/javascript") && name != "vendor/qrcode.js";
        for (name, _) in FILES.iter().filter(|(name, _)| is_needed(name)) {
            assert!(named.contains(name), "{name}");
        }
        for name in named {
            let name = name.split('#').next().unwrap_or_default();
            assert!(FILES.iter().any(|(file, _)| *file == name), "{name}");
        }
    }
}
