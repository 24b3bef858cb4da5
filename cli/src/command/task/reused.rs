//! A new task under a name that another task had.

use wire::inspect::TaskSummary;
use wire::route;

use crate::output::Output;
use crate::server::Server;

/// Notes that an earlier task had the name: commands that use it mean the new task from then on.
pub(super) async fn say_reused(server: &Server, new: &TaskSummary, output: Output) {
    // The task exists already, so a failure to read the others is not reported.
    let Ok(tasks) = server.list::<TaskSummary>(route::TASKS, usize::MAX).await else { return };
    let is_before = |task: &&TaskSummary| task.id != new.id && task.name == new.name && task.status.is_terminal();
    if let Some(TaskSummary { id, name, status, .. }) = tasks.iter().find(is_before) {
        output.note(format!(
            "an earlier task `{name}` is {status}: the name means the new one from now on, and {id} the earlier one"
        ));
    }
}
