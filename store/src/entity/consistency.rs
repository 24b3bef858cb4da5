//! Rules between rows that the schema's constraints cannot express; they hold at every commit.

use federation::id::TaskId;

use crate::error::Result;
use crate::transaction::Transaction;

/// A rule that rows of a task break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenRule {
    pub task: TaskId,
    pub rule: &'static str,
    /// Of the round or model version that breaks it.
    pub number: u32,
}

/// Each rule, and a query for the task and the number of the round or version of every row that breaks it.
const RULES: [(&str, &str); 7] = [
    (
        "a task's newest model version has a row",
        "SELECT id, model_version FROM task
         WHERE NOT EXISTS (SELECT 1 FROM model_version WHERE task = task.id AND version = task.model_version)",
    ),
    (
        "no model version is newer than its task says",
        "SELECT task, version FROM model_version JOIN task ON task.id = task WHERE version > task.model_version",
    ),
    (
        "model versions are consecutive",
        "SELECT task, version FROM model_version AS later WHERE version > 0
         AND NOT EXISTS (SELECT 1 FROM model_version WHERE task = later.task AND version = later.version - 1)",
    ),
    (
        "a round starts from a model version that has a row",
        "SELECT task, number FROM round AS started
         WHERE NOT EXISTS (SELECT 1 FROM model_version WHERE task = started.task AND version = started.base_version)",
    ),
    (
        "a completed round has published a model version, and no other round has",
        "SELECT task, number FROM round AS ended WHERE (state = 'COMPLETED')
         <> EXISTS (SELECT 1 FROM model_version
                    WHERE task = ended.task AND round = ended.number AND version = ended.model_version)",
    ),
    (
        "a partial sum contains the inputs that are marked as folded",
        "SELECT task, number FROM partial_sum AS folded
         WHERE inputs <> (SELECT count(*) FROM admitted
                          WHERE (task, number, attempt) = (folded.task, folded.number, folded.attempt) AND folded = 1)",
    ),
    (
        "rows of a privacy ledger are numbered without gaps",
        "SELECT task, number FROM privacy_ledger AS later WHERE idx > 0
         AND NOT EXISTS (SELECT 1 FROM privacy_ledger WHERE task = later.task AND idx = later.idx - 1)",
    ),
];

impl Transaction<'_> {
    /// Every rule that is broken, and where. Reads whole tables.
    pub async fn broken_rules(&mut self) -> Result<Vec<BrokenRule>> {
        let mut broken = Vec::new();
        for (rule, query) in RULES {
            let rows: Vec<(TaskId, u32)> = self.list(query, ()).await?;
            broken.extend(rows.into_iter().map(|(task, number)| BrokenRule { task, rule, number }));
        }
        Ok(broken)
    }
}
