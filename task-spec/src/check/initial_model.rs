//! Checks of a task's given initial model.

use crate::problem::Checks;
use crate::{InitialModel, Personalization, TaskSpec};

impl TaskSpec {
    /// Rejects unusable initial models.
    pub(super) fn check_initial_model(&self, initial: &InitialModel, checks: &mut Checks) {
        const FIELD: &str = "model.initial";
        checks.require(!self.analyses_rows(), FIELD, "must be left out: an analysis of rows has no model");
        checks.require(
            !self.personalization.as_ref().is_some_and(Personalization::shares_adapters),
            FIELD,
            "must be left out: with shared adapters, devices draw the frozen model from model.seed, or bring that of \
             personalization.base_sha256",
        );
        checks.require_with(!matches!(initial, InitialModel::File(_)), FIELD, || {
            format!(
                "names the file {initial:?}, which only `tributary task create` can upload; name an uploaded file as \
                 \"sha256:…\", or a version as {{ task = \"…\", version = N }}",
                initial = initial.to_string()
            )
        });
    }
}
