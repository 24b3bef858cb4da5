//! Tasks, rounds, cohorts and model versions: the rules by which a round advances. Pure.
