//! The tensors of a round's computation: those of a model and the sent ones, or the values summed by an analysis.

use std::sync::Arc;

use learning::analytics::{Analysis, AnalyticsSpec};
use learning::contribution::scaffold;
use learning::{AdapterError, Adapters, Layout, Partition, Patterns, TensorSpec};
use task_spec::{ModelSpec, Personalization, Solver};

use crate::{AssignmentTerms, RecipeError};

/// The tensors of a task.
#[derive(Clone, Debug)]
pub struct Tensors {
    /// Every tensor of the model; for an analysis one tensor, the summed values.
    pub whole: Arc<Layout>,
    /// The sent and summed tensors: all of them, unless some stay local or adapters are sent instead.
    pub shared: Arc<Layout>,
    /// The shared tensors, followed by those published and summed by a solver (SCAFFOLD's control variate).
    pub published: Arc<Layout>,
    /// The local tensors, if any.
    pub partition: Option<Arc<Partition>>,
    /// The low-rank adapters, shared or local, if the task has any.
    pub adapters: Option<Arc<Adapters>>,
    /// The tensors of the model that an evaluation measures, if the task is one.
    pub evaluated: Option<Arc<Layout>>,
    /// The analysis, if the task is one.
    pub analysis: Option<Arc<Analysis>>,
}

impl Tensors {
    /// Derives the tensors.
    ///
    /// # Errors
    /// [`RecipeError`]: the tensors do not form a model, or settings do not fit them.
    pub fn new(terms: &AssignmentTerms<'_>) -> Result<Self, RecipeError> {
        match &terms.encoding.analytics {
            None => Self::of_model(terms.model, terms.encoding.personalization.as_ref(), terms.encoding.solver),
            Some(analytics) => {
                let spec = AnalyticsSpec::read(analytics)?;
                let analysis = Analysis::new(spec, terms.encoding.modulus_bits, terms.encoding.max_cohort)?;
                let evaluated = if analysis.is_evaluation() { Some(layout(terms.model)?) } else { None };
                Ok(Self { evaluated, ..Self::of_sums(analysis)? })
            }
        }
    }

    fn of_sums(analysis: Analysis) -> Result<Self, RecipeError> {
        let sums = TensorSpec { name: "sums".to_owned(), shape: vec![analysis.codec().values() as u64] };
        let sums = Arc::new(Layout::new(vec![sums])?);
        Ok(Self {
            whole: Arc::clone(&sums),
            shared: Arc::clone(&sums),
            published: sums,
            partition: None,
            adapters: None,
            evaluated: None,
            analysis: Some(Arc::new(analysis)),
        })
    }

    /// The tensors of a trained model.
    ///
    /// # Errors
    /// [`RecipeError`].
    pub fn of_model(
        model: &ModelSpec,
        method: Option<&Personalization>,
        solver: Option<Solver>,
    ) -> Result<Self, RecipeError> {
        let whole = layout(model)?;
        let partition = match model.personal.as_slice() {
            [] => None,
            patterns => Some(Arc::new(whole.partition(&Patterns::new(patterns.to_vec())?)?)),
        };
        if let (Some(method), Some(partition)) = (method, &partition) {
            for tensor in partition.personal().tensors() {
                method.check_tensor(&tensor.name, &tensor.shape).map_err(RecipeError::PersonalTensor)?;
            }
        }
        let adapters = method.map(|method| adapters(method, &whole)).transpose()?.flatten().map(Arc::new);
        let shares_adapters = method.is_some_and(Personalization::shares_adapters);
        let shared = match (&partition, &adapters) {
            (Some(partition), _) => Arc::clone(partition.shared()),
            (None, Some(adapters)) if shares_adapters => Arc::clone(adapters.layout()),
            (None, _) => Arc::clone(&whole),
        };
        let has_control = solver.is_some_and(|solver| solver.has_control());
        let published = scaffold::published(&shared, has_control).map_err(RecipeError::Control)?;
        Ok(Self { whole, shared, published, partition, adapters, evaluated: None, analysis: None })
    }
}

/// All tensors of a model.
fn layout(model: &ModelSpec) -> Result<Arc<Layout>, RecipeError> {
    let specs = model.tensors.iter();
    let specs = specs.map(|tensor| TensorSpec { name: tensor.name.clone(), shape: tensor.shape.clone() });
    Ok(Arc::new(Layout::new(specs.collect())?))
}

/// The adapters of a task, if it has any.
fn adapters(method: &Personalization, whole: &Arc<Layout>) -> Result<Option<Adapters>, AdapterError> {
    let Personalization::Lora { layers, rank, alpha, .. } = method else { return Ok(None) };
    Adapters::new(whole, &Patterns::new(layers.clone())?, *rank, *alpha).map(Some)
}
