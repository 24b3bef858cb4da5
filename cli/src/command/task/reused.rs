//! A new task under a name that another task had.

use wire::inspect::TaskSummary;
use wire::route;

use crate::output::Output;
use crate::server::Server;

/// Says so, since commands that name it mean the new task from now on.
pub(super) async fn say_reused(server: &Server, new: &TaskSummary, output: Output) {
    // The task is made: that the others cannot be read is no failure of it.
    let Ok(tasks) = server.list::<TaskSummary>(route::TASKS, usize::MAX).await else { return };
    let is_before = |task: &&TaskSummary| task.id != new.id && task.name == new.name && task.status.is_terminal();
    if let Some(TaskSummary { id, name, status, .. }) = tasks.iter().find(is_before) {
        output.note(format!(
            "an earlier task `{name}` is {status}: the name means the new one from now on, and {id} the earlier one"
        ));
    }
}
