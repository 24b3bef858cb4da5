//! Downloads the model for a machine: into a file if there is a folder for it, else into memory.

use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;
use learning::Layout;
use wire::TaskId;
use wire::participant::ModelRef;

use crate::participant::model::model_file::ModelFile;
use crate::participant::states::action::Input;
use crate::transport::{Download, Transport, TransportError};

/// A model version's file.
pub(in crate::participant) struct ModelDownload {
    pub(in crate::participant) task: TaskId,
    pub(in crate::participant) model: ModelRef,
    /// Of the model in it; `None` for the state of an analysis.
    pub(in crate::participant) layout: Option<Arc<Layout>>,
}

impl ModelDownload {
    /// Fetches the bytes missing after `have`, or after the content of the file in `folder`. The file stays until another
    /// model is requested, so that an app killed during training need not fetch the model again. A file with a wrong digest is removed
    /// at once.
    pub(in crate::participant) async fn fetch(
        self,
        transport: &dyn Transport,
        folder: Option<PathBuf>,
        have: Vec<u8>,
    ) -> Input {
        let Some(folder) = folder else { return self.in_memory(transport, have).await };
        let model = self.model.clone();
        let mut download = match files(move || Download::in_file(&folder, &model)).await {
            Ok(download) => download,
            // Without a place for the file, only a restart costs more.
            Err(_) => return self.in_memory(transport, have).await,
        };
        if download.bytes() < self.model.bytes
            && let Err(error) = transport.fetch_model(self.task, &self.model, &mut download).await
        {
            return Input::Fetched { have: Vec::new(), result: Err(error) };
        }
        match files(move || self.read(&download)).await {
            Ok(file) => Input::Given(Arc::new(file)),
            Err(error) => Input::Fetched { have: Vec::new(), result: Err(TransportError::protocol(error)) },
        }
    }

    async fn in_memory(&self, transport: &dyn Transport, have: Vec<u8>) -> Input {
        let mut download = Download::in_memory(have);
        let result = transport.fetch_model(self.task, &self.model, &mut download).await;
        Input::Fetched { have: download.into_bytes(), result }
    }

    fn read(&self, download: &Download) -> std::io::Result<ModelFile> {
        let Some(path) = download.path() else { return Err(std::io::Error::other("the model is not in a file")) };
        let file = match &self.layout {
            Some(layout) => ModelFile::read(File::open(path)?, layout)?,
            None => ModelFile::new(Bytes::from(std::fs::read(path)?)),
        };
        if file.sha256() != self.model.sha256 {
            std::fs::remove_file(path)?;
        }
        Ok(file)
    }
}

/// Works with files, away from the runtime's threads.
async fn files<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(std::io::Error::other(error)))
}
