//! The task of a region: read from its file, and completed for each round of the upper task.

use client_sdk::{Parameters, TrainingJob};
use learning::Layout;
use recipe::TaskModel;
use task_spec::{Initial, TaskSpec, TensorDeclaration};

use crate::failure::{Exit, Failure, Outcome};
use crate::task_input::{self, SetArgs};

/// Reads the task file of a region.
///
/// # Errors
/// [`Exit::Configuration`] if it is none, or is a task that cannot start from another coordinator's model.
pub(super) fn read(source: &str, set: &SetArgs, rounds: u32) -> Outcome<TaskSpec> {
    let mut spec = task_input::create(source, set)?;
    spec.rounds.count = rounds;
    let wrong = |field: &str, detail: &str| {
        let failure = Failure::new(Exit::Configuration, format!("{source}: it cannot be the task of a region"));
        Err(failure.with_error(field, detail.to_owned()))
    };
    match check(&spec) {
        Ok(()) => Ok(spec),
        Err((field, detail)) => wrong(field, detail),
    }
}

/// Whether a task can start from another coordinator's model, and return one.
///
/// # Errors
/// The key that prevents it, and why.
pub(crate) fn check(spec: &TaskSpec) -> Result<(), (&'static str, &'static str)> {
    if spec.analytics.is_some() {
        return Err(("analytics", "a region trains a model: leave the analysis out"));
    }
    if spec.model.initial.is_some() {
        return Err(("model.initial", "every regional task starts from the upper task's model: leave it out"));
    }
    if spec.personalization.is_some() || !spec.model.personal.is_empty() {
        return Err(("model.personal", "what stays on devices is not in the model that the region returns"));
    }
    if spec.rounds.keep_best.is_some() {
        return Err((
            "rounds.keep_best",
            "a region returns the last version of its task: leave it out, or set it in the upper task",
        ));
    }
    Ok(())
}

/// The model of the upper task, for a region whose file has none.
pub(super) fn with_model(spec: &TaskSpec, model: &Parameters, job: &TrainingJob) -> TaskSpec {
    let mut spec = spec.clone();
    if spec.model.tensors.is_empty() {
        let declared = |tensor: &learning::TensorSpec| TensorDeclaration {
            name: tensor.name.clone(),
            shape: tensor.shape.clone(),
            init: Initial::default(),
        };
        spec.model.tensors = model.layout().tensors().iter().map(declared).collect();
        spec.model.architecture.clone_from(&job.architecture);
        spec.model.table.clone_from(&job.table);
    }
    spec
}

/// Compares the received model with the one that the regional task publishes.
///
/// # Errors
/// The first tensor that differs, by its name.
pub(super) fn check_layout(spec: &TaskSpec, received: &Layout) -> Result<(), String> {
    let mut spec = spec.clone();
    // As the regional coordinator does: without a noise multiplier a private task has no model.
    let model = TaskModel::complete(&mut spec).and_then(|()| TaskModel::new(&spec)).map_err(|problems| {
        let problems: Vec<_> =
            problems.iter().map(|problem| format!("{}: {}", problem.field, problem.problem)).collect();
        format!("the regional task cannot work: {}", problems.join("; "))
    })?;
    let regional = &model.tensors.published;
    for tensor in regional.tensors() {
        let Some(found) = received.find(&tensor.name) else {
            return Err(format!("the regional task has tensor {:?}, and the received model lacks it", tensor.name));
        };
        let shape = &received.tensors()[found].shape;
        if *shape != tensor.shape {
            let (name, expected) = (&tensor.name, &tensor.shape);
            return Err(format!(
                "tensor {name:?} has shape {shape:?} in the received model, and {expected:?} in the regional task"
            ));
        }
    }
    match received.tensors().iter().find(|tensor| regional.find(&tensor.name).is_none()) {
        Some(tensor) => Err(format!("the received model has tensor {:?}, and the regional task lacks it", tensor.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(tensors: &str) -> TaskSpec {
        toml::from_str(&format!("name = \"a\"\n[model]\ntensors = [{tensors}]\n[selection]\ncohort = {{ count = 3 }}"))
            .unwrap()
    }

    #[test]
    fn tensor_that_differs_is_named() {
        let regional = spec(r#"{ name = "w", shape = [2, 3] }, { name = "b", shape = [2] }"#);
        let received = |tensors: &[(&str, &[u64])]| {
            let tensor =
                |&(name, shape): &(&str, &[u64])| learning::TensorSpec { name: name.into(), shape: shape.into() };
            Layout::new(tensors.iter().map(tensor).collect()).unwrap()
        };
        let check = |tensors: &[(&str, &[u64])]| check_layout(&regional, &received(tensors));
        assert_eq!(check(&[("b", &[2]), ("w", &[2, 3])]), Ok(()), "their order does not matter");
        for (tensors, said) in [
            (&[("w", &[2_u64, 3][..])][..], "tensor \"b\", and the received model lacks it"),
            (&[("w", &[3, 2]), ("b", &[2])], "tensor \"w\" has shape [3, 2] in the received model, and [2, 3] in"),
            (&[("w", &[2, 3]), ("b", &[2]), ("c", &[1])], "tensor \"c\", and the regional task lacks it"),
        ] {
            let problem = check(tensors).unwrap_err();
            assert!(problem.contains(said), "{problem}");
        }
    }

    #[test]
    fn noise_of_a_private_task_is_computed() {
        let mut regional = spec(r#"{ name = "w", shape = [2] }"#);
        regional.secure_aggregation.enabled = false;
        let privacy = r#"{ "mechanism": "central_gaussian", "epsilon": 4.0, "delta": 1e-5, "clip": { "fixed": 1.0 } }"#;
        regional.privacy = serde_json::from_str(privacy).unwrap();
        let received = learning::TensorSpec { name: "w".into(), shape: vec![2] };
        assert_eq!(check_layout(&regional, &Layout::new(vec![received]).unwrap()), Ok(()));
    }

    #[test]
    fn task_of_a_region_has_no_initial_model_and_no_personal_tensors() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("task.toml");
        for (line, field) in
            [("initial = { task = \"x\" }", "model.initial"), ("personal = [\"fc.*\"]", "model.personal")]
        {
            std::fs::write(
                &path,
                format!(
                    "name = \"a\"\n[model]\narchitecture = {{ kind = \"linear\", inputs = 2, classes = 2 }}\n{line}\n"
                ),
            )
            .unwrap();
            let failure = read(path.to_str().unwrap(), &SetArgs::default(), 2).unwrap_err();
            assert_eq!((failure.exit, failure.more.errors[0].field.as_str()), (Exit::Configuration, field));
        }
        std::fs::write(&path, "name = \"a\"\n[rounds]\ncount = 9\n").unwrap();
        assert_eq!(read(path.to_str().unwrap(), &SetArgs::default(), 2).unwrap().rounds.count, 2);
        let ours = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/compose/regional.toml");
        assert_eq!(read(ours, &SetArgs::default(), 5).unwrap().rounds.count, 5);
    }
}
