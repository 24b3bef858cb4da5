//! The demo's texts before and after its rounds.

use std::time::Duration;

use wire::grammar::counted;
use wire::inspect::{PrivacyReport, TaskView};

use super::Demo;
use super::events::{Finished, Personalized, Started};
use super::personal;
use super::scene::Scene;
use super::world::World;
use super::{Federation, privacy};
use crate::command::round::words::uploads;
use crate::command::task::{objections, under};
use crate::output::{Output, duration, number};
use crate::privacy_notes::weak_promise;

impl Demo {
    pub(super) fn announce(
        &self,
        world: &World,
        scene: &Scene,
        task: &TaskView,
        report: Option<&PrivacyReport>,
        federation: &Federation,
        output: Output,
    ) {
        let started = Started {
            url: world.url.clone(),
            participants: self.data.participants,
            rounds: task.spec.rounds.count,
            data: scene.description.clone(),
            model: scene.architecture.kind(),
            parameters: task.summary.parameters,
            seed: scene.seed,
            protection: task.protection,
            privacy: report.cloned(),
            personalization: task.spec.personalization.clone(),
        };
        output.event("started", &started);
        if let Some(method) = &federation.personalize {
            output.line(format!("Personalized {}", method.text()));
        } else if federation.is_compared {
            output.line("Personalized no: one shared model, for comparison");
        }
        output.line(format!("Data         {}", started.data));
        output.line(format!("Model        {}, {} parameters", started.model, number(started.parameters)));
        output.line(format!("Coordinator  {}", world.url));
        let protection = task.protection.iter().flat_map(|protection| under("Updates      ", &protection.lines()));
        protection.for_each(|line| output.line(line));
        if task.spec.secure_aggregation.enabled {
            let others = "Apps         those of this demo take part in any session; one with the SDK's defaults would";
            output.line(match objections(&task.spec).as_slice() {
                [] => format!("{others} accept this one"),
                reasons => format!("{others} refuse this one: {}", reasons.join("; ")),
            });
        }
        let plan = &scene.training;
        output.line(format!(
            "Training     {} a round, batches of {}, learning rate {}; seed {}",
            counted(plan.epochs, "epoch", "epochs"),
            plan.batch_size,
            plan.learning_rate,
            scene.seed
        ));
        if let Some(robust) = &task.spec.aggregation.robust {
            let rule = robust.rule.as_str().replace('_', " ");
            let of =
                robust.group_size.map_or_else(|| "updates".to_owned(), |size| format!("means of groups of {size}"));
            let part = 100.0 * robust.attackers;
            output.line(format!("Rule         {rule} of the {of}, against {part} % of the participants"));
        }
        if self.hostile() > 0 {
            let (hostile, all) = (self.hostile(), self.data.participants);
            output.line(format!("Attack       {hostile} of {all} participants multiply their updates by -10"));
        }
        report.map(privacy::words).into_iter().flatten().for_each(|line| output.line(line));
        weak_promise(&task.spec).iter().for_each(|warning| output.note(format!("warning: {warning}")));
        output.line("");
    }

    pub(super) fn conclude(&self, finished: &Finished, task: &str, output: Output) {
        output.event("finished", finished);
        output.line("");
        output.line(format!(
            "{} rounds in {}: accuracy {:.2} %, loss {:.4} on held-out data.",
            finished.rounds,
            duration(Duration::from_secs_f64(finished.seconds)),
            100.0 * finished.accuracy,
            finished.loss
        ));
        if let Some(score) = finished.centralized {
            output.line(format!(
                "The same model trained on the pooled data: accuracy {:.2} %, loss {:.4}.",
                100.0 * score.accuracy,
                score.loss
            ));
        }
        if let Some(Personalized { served }) = &finished.personalization {
            output.line(format!(
                "\nAccuracy on each participant's own held-out data, after as many passes over the rest of it:\n{}",
                personal::table(served, output.width())
            ));
        }
        if let Some(compression) = &finished.compression {
            output.line(format!("Uploads: {}.", uploads(compression)));
        }
        finished.privacy.iter().flat_map(privacy::spent_words).for_each(|line| output.line(line));
        output.line(format!("Model: {} (sha256 {})", finished.model.path.display(), finished.model.sha256));
        if !self.inspect {
            output.line(format!(
                "Add --inspect to keep the coordinator running, for example for `tributary round show {task} 1`."
            ));
        }
    }
}
