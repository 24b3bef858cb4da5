//! Requirements of a graph's running statistics on the rest of the task.

use graph::Graph;

use crate::problem::Checks;
use crate::{BatchNorm, Personalization, TaskSpec, matches_pattern};

const FIELD: &str = "model.batch_norm";

impl TaskSpec {
    /// Checks that the task states what its graph does, and that its method and batches go with it. `graph` is the model, if
    /// it is a graph that could be read.
    pub(super) fn check_batch_norm(&self, graph: Option<&Graph>, checks: &mut Checks) {
        let stated = self.model.batch_norm.unwrap_or(BatchNorm::Frozen);
        let layers = graph.map(Graph::batch_statistics).unwrap_or_default();
        let Some(graph) = graph.filter(|_| !layers.is_empty()) else {
            let is_unread =
                self.model.architecture.as_ref().is_some_and(|told| told["kind"] == "graph") && graph.is_none();
            checks.require_with(stated == BatchNorm::Frozen || is_unread, FIELD, || {
                let stated = stated.as_str();
                format!(
                    "is {stated:?}, and the model has no running statistics that train: give `model.graph`, imported with \
                     `--batch-norm {stated}`"
                )
            });
            return;
        };
        let method = self.personalization.as_ref();
        match stated {
            BatchNorm::Frozen => checks.require(
                false,
                FIELD,
                "must be \"averaged\" or \"local\": the graph trains by the statistics of the batch; `tributary model import` with \
                 `--batch-norm frozen` makes one that does not",
            ),
            BatchNorm::Local => checks.require_with(
                matches!(method, None | Some(Personalization::FedPer {} | Personalization::FedBn {})),
                FIELD,
                || refused(stated, method, "which keeps other tensors local: take \"fed_per\" or \"fed_bn\""),
            ),
            BatchNorm::Averaged => checks.require_with(
                !matches!(method, Some(Personalization::Lora { .. } | Personalization::Apfl { .. })),
                FIELD,
                || refused(stated, method, "which trains without running statistics: import the graph with \"frozen\""),
            ),
        }
        self.check_running_statistics(graph, stated, checks);
        let shortest = graph.lengths.map_or(1, |lengths| lengths.least);
        let least = graph.least_batch(shortest).unwrap_or(1);
        checks.require_with(self.training.batch_size >= least, "training.batch_size", || {
            format!("must be at least {least}: batch normalization needs more than one value per channel")
        });
    }

    /// Local statistics are personal tensors, and averaged ones are not.
    fn check_running_statistics(&self, graph: &Graph, stated: BatchNorm, checks: &mut Checks) {
        let patterns = &self.model.personal;
        let is_personal = |position: &usize| {
            graph
                .parameters
                .get(*position)
                .is_some_and(|tensor| patterns.iter().any(|p| matches_pattern(p, &tensor.name)))
        };
        let name = |position: usize| graph.parameters[position].name.as_str();
        let all = graph.running_statistics();
        match stated {
            BatchNorm::Frozen => {}
            BatchNorm::Local => {
                if let Some(shared) = all.iter().find(|position| !is_personal(position)) {
                    let shared = name(*shared);
                    checks.require_with(false, "model.personal", || {
                        format!("must name {shared:?}, a running statistic that model.batch_norm = \"local\" keeps on devices")
                    });
                }
            }
            BatchNorm::Averaged => {
                if let Some(personal) = all.iter().find(|position| is_personal(position)) {
                    let personal = name(*personal);
                    checks.require_with(false, "model.personal", || {
                        format!("names {personal:?}, a running statistic; model.batch_norm = \"local\" keeps all of them local")
                    });
                }
            }
        }
    }
}

fn refused(stated: BatchNorm, method: Option<&Personalization>, why: &str) -> String {
    let (stated, method) = (stated.as_str(), method.map_or("fed_per", Personalization::as_str));
    format!("is {stated:?}, and personalization.method is {method:?}, {why}")
}
