//! The field of a task where an operator can correct an error.

use learning::analytics::MAX_EVALUATED_BYTES;
use learning::{AdapterError, AnalyticsError, AnalyticsSpec, CodecError};
use task_spec::{SpecError, TaskSpec};

use crate::{RecipeError, Tensors};

/// The error at its field.
pub(super) fn of(spec: &TaskSpec, error: RecipeError) -> Vec<SpecError> {
    let field = match &error {
        RecipeError::Layout(_) => "model.tensors",
        RecipeError::Personal(_) | RecipeError::PersonalTensor(_) => "model.personal",
        RecipeError::Adapters(AdapterError::Rank { .. } | AdapterError::NoRank) => "personalization.rank",
        RecipeError::Adapters(_) => "personalization.layers",
        RecipeError::Control(_) | RecipeError::Solver(_) | RecipeError::FairAndPrivate => "training.solver",
        RecipeError::WeighedAnalysis => "training",
        RecipeError::Fairness(_) => "training.fairness",
        RecipeError::Privacy(_) => "privacy",
        RecipeError::Analytics(AnalyticsError::Spec { field, problem }) => {
            return wrong(&of_analysis(spec, field), problem);
        }
        RecipeError::Analytics(AnalyticsError::NotPrivate) => "privacy.mechanism",
        RecipeError::Analytics(_) => "analytics",
        RecipeError::Codec(CodecError::Headroom(_) | CodecError::WrongLength(_)) => "aggregation",
        RecipeError::Codec(CodecError::NoClipNorm) => "aggregation.clip_norm",
        RecipeError::Codec(CodecError::K { .. }) => "compression.k",
        RecipeError::Codec(CodecError::Keep(_)) => "compression.keep",
        RecipeError::Codec(CodecError::Bits(_) | CodecError::NoHeadroom { .. }) => "compression.bits",
        RecipeError::Codec(CodecError::Rank(_) | CodecError::RankTooLarge { .. }) => "compression.rank",
        RecipeError::Codec(_) => "compression",
    };
    match error {
        // The field gives the context.
        RecipeError::Solver(problem) | RecipeError::PersonalTensor(problem) => wrong(field, problem),
        RecipeError::Fairness(error) => wrong(field, error),
        RecipeError::Privacy(error) => wrong(field, error),
        RecipeError::Analytics(error) => wrong(field, error),
        error => wrong(field, error),
    }
}

fn of_analysis(spec: &TaskSpec, field: &str) -> String {
    match field {
        "modulus_bits" if spec.secure_aggregation.enabled => "secure_aggregation.modulus_bits".to_owned(),
        "modulus_bits" => "aggregation.modulus_bits".to_owned(),
        "max_cohort" => "rounds.select_max".to_owned(),
        "size" => "analytics".to_owned(),
        field => format!("analytics.{field}"),
    }
}

/// Checks the number of rounds; for an analysis it is fixed.
pub(super) fn check_rounds(spec: &TaskSpec, rounds: u32) -> Result<(), Vec<SpecError>> {
    let count = spec.rounds.count;
    if count == rounds {
        return Ok(());
    }
    Err(wrong("rounds.count", format!("is {count}, but this analysis takes {rounds} rounds, so it must be {rounds}")))
}

/// Checks that the state of an evaluation has room for its model.
pub(super) fn check_evaluated(tensors: &Tensors) -> Result<(), Vec<SpecError>> {
    let values = tensors.evaluated.as_ref().map_or(0, |layout| layout.len() as u64);
    // A header of names and sizes is far smaller than a MiB.
    let most = (MAX_EVALUATED_BYTES - (1 << 20)) / 4;
    if values <= most {
        return Ok(());
    }
    Err(wrong("model.tensors", format!("have {values} values; an evaluation takes models of at most {most}")))
}

/// Checks that the named columns of a table are those of the analysis.
pub(super) fn check_columns(spec: &TaskSpec, analysis: &AnalyticsSpec) -> Result<(), Vec<SpecError>> {
    // Tasks of the other kinds exist whose apps do not read these columns.
    let columns = match analysis {
        AnalyticsSpec::Statistics(_) | AnalyticsSpec::KMeans(_) | AnalyticsSpec::Trees(_) => None,
        _ => analysis.plain_columns(),
    };
    let (Some(table), Some(columns)) = (&spec.model.table, columns) else { return Ok(()) };
    let features = table.features.len();
    if features != columns {
        return Err(wrong("model.table.features", format!("names {features} columns, and the analysis has {columns}")));
    }
    for (at, feature) in table.features.iter().enumerate() {
        let words = feature.one_of.len() + usize::from(feature.other);
        let categories = analysis.categories(at).map_or(0, |categories| categories as usize);
        if words > 0 && words != categories {
            let problem = match categories {
                0 => format!("`{}` has words, and the column of the analysis is a number", feature.column),
                _ => format!("`{}` has {words} words, and the analysis {categories} categories", feature.column),
            };
            return Err(wrong(&format!("model.table.features[{at}].one_of"), problem));
        }
    }
    if analysis.has_target() == table.label.is_some() {
        return Ok(());
    }
    let problem = if analysis.has_target() {
        "must name the column with the target"
    } else {
        "must be left out: there is no target"
    };
    Err(wrong("model.table.label", problem))
}

pub(super) fn wrong(field: &str, problem: impl std::fmt::Display) -> Vec<SpecError> {
    vec![SpecError { field: field.to_owned(), problem: problem.to_string() }]
}
