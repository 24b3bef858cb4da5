// The tasks of a region: one for each round of another coordinator’s task, in which the region is one participant.

/** How `tributary region` names them: task file and origin, the upper round, and what the round began with. */
const NAME = /^(.+-[0-9a-f]{6})-(\d+)-[0-9a-f]{8}$/;

/** The region and the upper round of a task; null for other tasks. */
export function regional(name) {
  const found = NAME.exec(name);
  return found && { region: found[1], round: Number(found[2]) };
}

/** The newest task of each region in place of all its tasks, and how many each has; `tasks` has the newest first. */
export function folded(tasks) {
  const counts = new Map();
  const shown = tasks.filter(({ name }) => {
    const { region } = regional(name) ?? {};
    if (region == null) return true;
    counts.set(region, (counts.get(region) ?? 0) + 1);
    return counts.get(region) === 1;
  });
  return { shown, counts };
}
