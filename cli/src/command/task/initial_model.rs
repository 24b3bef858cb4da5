//! The file of the model that a task starts from: read, and uploaded to the coordinator.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use learning::checkpoint::given_layout;
use ring::digest::{Context, SHA256, digest};
use task_spec::{Initial, InitialModel, ModelSpec, TaskSpec, TensorDeclaration};
use wire::admin::{MODEL_FILE_PART_BYTES as PART_BYTES, ModelFile, ModelFileReply};
use wire::{Digest, route};

use crate::failure::{Exit, Failure, Outcome};
use crate::output::Output;
use crate::server::Server;
use crate::task_file::beside;

/// Attempts to send a part.
const ATTEMPTS: u32 = 6;

/// Uploads the file that a task names as its initial model, and puts the file's digest in its place. A task without tensors gets
/// those of the file. Parts that the coordinator has are not sent again.
///
/// # Errors
/// The file cannot be read or is not a model; the coordinator rejects it.
pub(super) async fn upload(spec: &mut TaskSpec, source: &str, server: &Server, output: Output) -> Outcome {
    let Some(InitialModel::File(named)) = &spec.model.initial else { return Ok(()) };
    let path = beside(named, Path::new(source));
    let unreadable = || Failure::because(Exit::Data, format!("cannot read {}", path.display()));
    let mut file = File::open(&path).map_err(unreadable())?;
    let found = given_layout(&mut file).map_err(Failure::because(Exit::Data, path.display().to_string()))?;
    declare(&mut spec.model, &found);
    let sha256 = send(&mut file, &path, server, output).await?;
    spec.model.initial = Some(InitialModel::Stored(sha256));
    Ok(())
}

/// Declares the tensors of the file as the model's, unless the task declares some.
fn declare(model: &mut ModelSpec, found: &learning::Layout) {
    if model.tensors.is_empty() {
        let declared = |tensor: &learning::TensorSpec| TensorDeclaration {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            init: Initial::default(),
        };
        model.tensors = found.tensors().iter().map(declared).collect();
    }
}

/// The digests of the whole file and of its parts.
fn digests(file: &mut impl Read) -> std::io::Result<(Digest, ModelFile)> {
    let mut whole = Context::new(&SHA256);
    let mut found = ModelFile { bytes: 0, parts: Vec::new() };
    loop {
        let part = next_part(file)?;
        if part.is_empty() {
            return Ok((sized(whole.finish()), found));
        }
        whole.update(&part);
        found.bytes += part.len() as u64;
        found.parts.push(sized(digest(&SHA256, &part)));
    }
}

fn next_part(file: &mut impl Read) -> std::io::Result<Vec<u8>> {
    let mut part = Vec::new();
    file.take(PART_BYTES as u64).read_to_end(&mut part)?;
    Ok(part)
}

fn sized(digest: ring::digest::Digest) -> Digest {
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    Digest(bytes)
}

/// Sends the parts of a model that the coordinator does not have, and returns the digest of the whole. `path` is its name in
/// errors.
///
/// # Errors
/// The model cannot be read; the coordinator rejects it.
pub(crate) async fn send(
    file: &mut (impl Read + Seek),
    path: &Path,
    server: &Server,
    output: Output,
) -> Outcome<Digest> {
    let unreadable = || Failure::because(Exit::Data, format!("cannot read {}", path.display()));
    file.seek(SeekFrom::Start(0)).map_err(unreadable())?;
    let (sha256, content) = digests(file).map_err(unreadable())?;
    let place = route::fill(route::MODEL_FILE, &[&sha256]);
    let bar = output.progress(content.bytes);
    for _ in 0..ATTEMPTS {
        let ModelFileReply { missing } = server.put_model(&place, &content).await?;
        if missing.is_empty() {
            bar.finish_and_clear();
            return Ok(sha256);
        }
        let left = |sent: usize| ((missing.len() - sent) * PART_BYTES) as u64;
        for (sent, &number) in missing.iter().enumerate() {
            bar.set_position(content.bytes.saturating_sub(left(sent)));
            let changed = || Failure::new(Exit::Data, format!("{} changed while it was sent", path.display()));
            let expected = content.parts.get(number as usize).ok_or_else(changed)?;
            file.seek(SeekFrom::Start(u64::from(number) * PART_BYTES as u64))
                .and_then(|_| next_part(file))
                .map_err(unreadable())
                .and_then(|part| if sized(digest(&SHA256, &part)) == *expected { Ok(part) } else { Err(changed()) })
                .map(|part| send_part(server, *expected, part))?
                .await?;
        }
    }
    Err(Failure::new(Exit::Server, format!("the coordinator does not keep the parts of {}", path.display())))
}

/// Sends a part, several times if the connection fails.
async fn send_part(server: &Server, sha256: Digest, part: Vec<u8>) -> Outcome {
    let place = route::fill(route::MODEL_FILE_PART, &[&sha256]);
    let mut attempt = 1;
    loop {
        match server.put_bytes(&place, part.clone()).await {
            Err(failure) if attempt < ATTEMPTS && matches!(failure.exit, Exit::Connection | Exit::Unavailable) => {
                tokio::time::sleep(Duration::from_secs(1 << attempt)).await;
                attempt += 1;
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_8_mib_and_hashed_with_the_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("net");
        let bytes: Vec<u8> = (0..=250).cycle().take(PART_BYTES + 3).collect();
        std::fs::write(&path, &bytes).unwrap();
        let (whole, found) = digests(&mut File::open(&path).unwrap()).unwrap();
        let expected = bytes.chunks(PART_BYTES).map(|part| sized(digest(&SHA256, part))).collect();
        assert_eq!(found, ModelFile { bytes: bytes.len() as u64, parts: expected });
        assert_eq!(whole, sized(digest(&SHA256, &bytes)));
    }
}
