//! The signed record of a model version.

use wire::inspect::ModelView;
use wire::provenance::{Provenance, SignedProvenance};
use wire::route;

use crate::failure::{Exit, Failure, Outcome};
use crate::server::Server;

/// The record of a version, as it was signed.
///
/// # Errors
/// [`Exit::NotFound`] if there is none.
pub async fn get(server: &Server, model: &ModelView) -> Outcome<SignedProvenance> {
    let path = route::fill(route::MODEL_PROVENANCE, &[&model.task, &model.version]);
    server.get(&path, &[]).await
}

/// The record, if it is signed and that of this version.
///
/// # Errors
/// [`Exit::Integrity`].
pub fn opened(signed: &SignedProvenance, model: &ModelView) -> Outcome<Provenance> {
    let bad =
        |problem: String| Failure::new(Exit::Integrity, format!("the record of version {}: {problem}", model.version));
    let record = signed.open().map_err(|error| bad(error.to_string()))?;
    if (record.task, record.version, record.sha256) != (model.task, model.version, model.sha256) {
        return Err(bad("it is that of another model".to_owned()));
    }
    Ok(record)
}

/// The record of a version, which is signed and its; none if it was published before records were kept.
///
/// # Errors
/// [`Exit::Integrity`].
pub async fn record(server: &Server, model: &ModelView) -> Outcome<Option<SignedProvenance>> {
    match get(server, model).await {
        Ok(signed) => opened(&signed, model).map(|_| Some(signed)),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}
