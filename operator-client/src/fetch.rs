//! A resumable download, accepted only if its digest matches.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use reqwest::StatusCode;
use ring::digest::{Context, SHA256};
use wire::inspect::ModelView;
use wire::route;

use crate::failure::{Exit, Failure, Outcome};
use crate::server::Server;

/// Makes the display of a transfer of so many bytes, which is called with the number of bytes received so far.
pub type Transfers = Arc<dyn Fn(u64) -> Box<dyn FnMut(u64) + Send> + Send + Sync>;

/// A partial download, and the digest of its content.
struct Partial {
    path: PathBuf,
    file: File,
    digest: Context,
    length: u64,
}

/// Downloads `model` to `out`. A partial download is stored in the same folder, under a name with the digest.
///
/// # Errors
/// [`Exit::Integrity`] if the digest does not match, [`Exit::Io`], [`Exit::Connection`].
pub async fn fetch(server: &Server, model: &ModelView, out: &Path, transfers: &Transfers) -> Outcome {
    let mut partial = Partial::open(out, model)?;
    let mut show = transfers(model.bytes);
    show(partial.length);
    if partial.length < model.bytes {
        let path = route::model_parameters(model.task, model.version);
        let etag = format!("\"{}\"", model.sha256);
        let mut response = server.download(&path, partial.length, Some(&etag)).await?;
        if response.status() != StatusCode::PARTIAL_CONTENT {
            partial.restart()?;
        }
        loop {
            let chunk = response.chunk().await.map_err(|error| {
                Failure::caused(
                    Exit::Connection,
                    format!(
                        "cut off after {} of {} bytes; run the command again to resume",
                        partial.length, model.bytes
                    ),
                    &error.without_url(),
                )
            })?;
            let Some(chunk) = chunk else { break };
            partial.write(&chunk, model.bytes)?;
            show(partial.length);
        }
    }
    drop(show);
    partial.finish(out, model)
}

impl Partial {
    fn open(out: &Path, model: &ModelView) -> Outcome<Self> {
        let mut name = out.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", &model.sha256.to_string()[..16]));
        let path = out.with_file_name(name);
        let cannot = || Failure::because(Exit::Io, format!("cannot write {}", path.display()));
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(cannot())?;
        let mut digest = Context::new(&SHA256);
        let mut length = 0;
        let mut buffer = vec![0; 1 << 16];
        loop {
            let read = file.read(&mut buffer).map_err(cannot())?;
            if read == 0 {
                break;
            }
            digest.update(&buffer[..read]);
            length += read as u64;
        }
        let mut partial = Self { path, file, digest, length };
        if partial.length > model.bytes {
            partial.restart()?;
        }
        Ok(partial)
    }

    fn restart(&mut self) -> Outcome {
        self.file.set_len(0).map_err(self.cannot_write())?;
        self.digest = Context::new(&SHA256);
        self.length = 0;
        Ok(())
    }

    fn write(&mut self, chunk: &[u8], most: u64) -> Outcome {
        if self.length + chunk.len() as u64 > most {
            return Err(self.damaged(&format!("it is longer than the {most} bytes that were announced")));
        }
        self.file.write_all(chunk).map_err(self.cannot_write())?;
        self.digest.update(chunk);
        self.length += chunk.len() as u64;
        Ok(())
    }

    fn finish(self, out: &Path, model: &ModelView) -> Outcome {
        if self.length < model.bytes {
            let detail =
                format!("cut off after {} of {} bytes; run the command again to resume", self.length, model.bytes);
            return Err(Failure::new(Exit::Connection, detail));
        }
        let found = self.digest.clone().finish();
        if found.as_ref() != model.sha256.0 {
            return Err(self.damaged("its SHA-256 is not the published one"));
        }
        self.file.sync_all().map_err(self.cannot_write())?;
        std::fs::rename(&self.path, out)
            .map_err(Failure::because(Exit::Io, format!("cannot rename to {}", out.display())))
    }

    fn cannot_write(&self) -> impl FnOnce(std::io::Error) -> Failure + use<> {
        Failure::because(Exit::Io, format!("cannot write {}", self.path.display()))
    }

    /// Deletes a useless partial file.
    fn damaged(&self, why: &str) -> Failure {
        let _ = std::fs::remove_file(&self.path);
        Failure::new(Exit::Integrity, format!("the model was deleted: {why}"))
    }
}
