//! Refusals of modules whose gradients candle cuts or computes wrongly, and of modules that are not the task's.

use candle_core::{D, DType};
use candle_nn::loss::cross_entropy;
use candle_nn::ops::{dropout, layer_norm, layer_norm_slow, rms_norm, rms_norm_slow, softmax, softmax_last_dim};
use candle_nn::rotary_emb::{rope, rope_slow};
use candle_nn::{LayerNorm, Module as _, linear};
use task_spec::TrainingPlan;

use super::tests::{job, model, rows};
use super::*;

type Middle = fn(&VarBuilder<'static>, &Tensor) -> Result<Tensor>;
type Shapes<'a> = &'a [(&'a str, &'a [u64])];

/// One step on eight examples.
fn step() -> TrainingJob {
    job(TrainingPlan { steps: Some(1), batch_size: 8, learning_rate: 0.1, ..TrainingPlan::default() })
}

/// A module of `body`, `middle` and `head`, which takes its tensors when it computes.
fn trainer(middle: Middle) -> CandleTrainer<VarBuilder<'static>, Dataset> {
    let loss = move |vb: &VarBuilder<'static>, (rows, labels): &(Tensor, Tensor)| {
        let x = middle(vb, &rows.matmul(&vb.get((24, 24), "body")?)?)?;
        cross_entropy(&x.matmul(&vb.get((x.dim(1)?, 3), "head")?)?, labels)
    };
    CandleTrainer::new(Ok, loss, rows(8, 24, 3))
}

fn start(width: u64, extra: Shapes<'_>) -> Parameters {
    let (body, head) = ([24, 24], [width, 3]);
    let mut tensors: Vec<(&str, &[u64])> = vec![("body", &body), ("head", &head)];
    tensors.extend(extra);
    model(&tensors)
}

fn refusal<N, Data: CandleData>(mut trainer: CandleTrainer<N, Data>, start: &Parameters) -> String {
    match trainer.train(start, &step()) {
        Err(TrainerError::Refused(error)) => error.to_string(),
        other => panic!("{:?}", other.map(|trained| trained.metrics)),
    }
}

fn angles(x: &Tensor) -> Result<[Tensor; 2]> {
    let angles = Tensor::arange(0_u32, 12, x.device())?.to_dtype(DType::F32)?.reshape((4, 3))?;
    Ok([angles.cos()?, angles.sin()?])
}

fn images(x: &Tensor) -> Result<Tensor> {
    x.reshape(((), 1, 4, 6))
}

/// Maximum over each 2x2 pixels, by an index: one pixel gets the gradient, and in a tie too.
fn pool(x: &Tensor) -> Result<Tensor> {
    let (batch, channels, height, width) = x.dims4()?;
    let (height, width) = (height / 2, width / 2);
    let x = x.reshape((batch, channels, height, 2, width, 2))?.permute([0, 1, 2, 4, 3, 5])?.contiguous()?;
    let x = x.reshape((batch, channels, height, width, 4))?;
    x.gather(&x.argmax_keepdim(D::Minus1)?, 4)?.squeeze(4)
}

#[test]
fn cut_gradients_are_refused_by_name() {
    let norm: Shapes<'_> = &[("scale", &[24]), ("shift", &[24])];
    let cases: [(&str, Middle, Shapes<'_>, &str); 5] = [
        (
            "LayerNorm",
            |vb, x| LayerNorm::new(vb.get(24, "scale")?, vb.get(24, "shift")?, 1e-5).forward(x),
            norm,
            "`body`, `scale`, `shift`:",
        ),
        (
            "layer_norm",
            |vb, x| layer_norm(x, &vb.get(24, "scale")?, &vb.get(24, "shift")?, 1e-5),
            norm,
            "`body`, `scale`, `shift`:",
        ),
        ("rms_norm", |vb, x| rms_norm(x, &vb.get(24, "scale")?, 1e-5), &norm[..1], "`body`, `scale`:"),
        ("softmax_last_dim", |_, x| softmax_last_dim(x), &[], "`body`:"),
        (
            "rope",
            |_, x| {
                let [cos, sin] = angles(x)?;
                rope(&images(x)?, &cos, &sin)?.flatten_from(1)
            },
            &[],
            "`body`:",
        ),
    ];
    for (name, middle, extra, tensors) in cases {
        let error = refusal(trainer(middle), &start(24, extra));
        assert!(error.contains("has no gradient for") && error.contains(tensors), "{name}: {error}");
        // Frozen tensors need none.
        let frozen = extra.iter().map(|(name, _)| *name).chain(["body"]);
        assert!(trainer(middle).with_frozen(frozen).train(&start(24, extra), &step()).is_ok(), "{name}");
    }
}

#[test]
fn wrong_gradients_are_refused_by_name() {
    let kernel: Shapes<'_> = &[("kernel", &[3, 2, 3])];
    let cases: [(&str, Middle, u64, Shapes<'_>, &str); 6] = [
        (
            "conv1d",
            |vb, x| x.reshape(((), 2, 12))?.conv1d(&vb.get((3, 2, 3), "kernel")?, 1, 1, 1, 1)?.flatten_from(1),
            36,
            kernel,
            "`kernel`",
        ),
        ("max_pool2d", |_, x| images(x)?.max_pool2d(2)?.flatten_from(1), 6, &[], "`body`"),
        ("avg_pool2d", |_, x| x.reshape(((), 1, 3, 8))?.avg_pool2d(2)?.flatten_from(1), 4, &[], "`body`"),
        (
            "upsample_nearest2d",
            |_, x| {
                let small = images(x)?;
                let large = small.upsample_nearest2d(8, 12)?;
                Tensor::cat(&[large.flatten_from(1)?, small.sqr()?.flatten_from(1)?], 1)
            },
            120,
            &[],
            "`body`",
        ),
        (
            "scatter_add",
            |_, x| {
                let index = Tensor::arange(0_u32, 24, x.device())?.broadcast_as(x.shape())?.contiguous()?;
                x.scatter_add(&index, &index.to_dtype(DType::F32)?, 1)
            },
            24,
            &[],
            "`body`",
        ),
        ("detach", |_, x| x + x.sqr()?.detach(), 24, &[], "`body`"),
    ];
    for (name, middle, width, extra, tensor) in cases {
        let start = start(width, extra);
        let error = refusal(trainer(middle), &start);
        assert!(error.contains(&format!("the gradient of {tensor} is wrong")), "{name}: {error}");
        assert!(trainer(middle).without_gradient_check().train(&start, &step()).is_ok(), "{name}");
    }
}

#[test]
fn right_gradients_are_accepted() {
    let norm: Shapes<'_> = &[("scale", &[24]), ("shift", &[24])];
    let cases: [(&str, Middle, u64, Shapes<'_>); 8] = [
        ("layer_norm", |vb, x| layer_norm_slow(x, &vb.get(24, "scale")?, &vb.get(24, "shift")?, 1e-5), 24, norm),
        ("rms_norm", |vb, x| rms_norm_slow(x, &vb.get(24, "scale")?, 1e-5), 24, &norm[..1]),
        ("softmax", |_, x| softmax(x, D::Minus1), 24, &[]),
        (
            "rope",
            |_, x| {
                let [cos, sin] = angles(x)?;
                rope_slow(&images(x)?, &cos, &sin)?.flatten_from(1)
            },
            24,
            &[],
        ),
        (
            "conv2d",
            |vb, x| {
                let kernel = vb.get((3, 2, 3), "kernel")?.unsqueeze(3)?;
                x.reshape(((), 2, 12, 1))?.pad_with_zeros(2, 1, 1)?.conv2d(&kernel, 0, 1, 1, 1)?.flatten_from(1)
            },
            36,
            &[("kernel", &[3, 2, 3])],
        ),
        ("pool", |_, x| pool(&images(&x.relu()?)?)?.flatten_from(1), 6, &[]),
        ("pool of ties", |_, x| pool(&images(&x.narrow(1, 0, 1)?.broadcast_as(x.shape())?)?)?.flatten_from(1), 6, &[]),
        ("kinks", |_, x| (x.relu()? + x.abs()?)? + x.clamp(-0.5, 0.5)?, 24, &[]),
    ];
    for (name, middle, width, extra) in cases {
        let start = start(width, extra);
        let trained = trainer(middle).train(&start, &step()).unwrap_or_else(|error| panic!("{name}: {error}"));
        let tensors = start.layout().tensors().iter().enumerate();
        for (index, tensor) in tensors {
            assert_ne!(trained.parameters.tensor(index), start.tensor(index), "{name}: {}", tensor.name);
        }
    }
}

#[test]
fn maximum_of_equal_pixels_is_refused() {
    // Each of the equal values gets the whole gradient.
    let middle: Middle = |_, x| x.narrow(1, 0, 1)?.broadcast_as(x.shape())?.reshape(((), 6, 4))?.max(2);
    let error = refusal(trainer(middle), &start(6, &[]));
    assert!(error.contains("the gradient of `body` is wrong"), "{error}");
}

#[test]
fn small_gradients_of_a_fitted_model_are_accepted() {
    let mut start = start(24, &[]);
    let mut trainer = trainer(|_, x| x.tanh());
    let plan = TrainingPlan { steps: Some(300), batch_size: 8, learning_rate: 1.0, ..TrainingPlan::default() };
    for _ in 0..3 {
        start = trainer.train(&start, &job(plan.clone())).unwrap().parameters;
        trainer.is_verified.set(false);
    }
    let loss = trainer.train(&start, &step()).unwrap().metrics[0].1.value;
    assert!(loss < 1e-2, "{loss}");
}

#[test]
fn modules_of_other_tensors_are_refused_by_name() {
    let good: Middle = |_, x| Ok(x.clone());
    let plain = |build: fn(VarBuilder<'static>) -> Result<candle_nn::Linear>| {
        CandleTrainer::new(build, |net, (rows, labels)| cross_entropy(&net.forward(rows)?, labels), rows(8, 24, 3))
    };
    for (error, words) in [
        (
            refusal(plain(|vb| linear(24, 3, vb.pp("out"))), &start(24, &[])),
            "takes `out.weight`, and the task's tensors are `body`",
        ),
        (refusal(trainer(good), &start(7, &[])), "`head` with shape [24, 3], and the task's has shape [7, 3]"),
        (refusal(trainer(good), &start(24, &[("spare", &[2])])), "does not take `spare`"),
        (
            refusal(trainer(good).with_frozen(["Body"]), &start(24, &[])),
            "freezes `Body`, and the task's are `body`, `head`",
        ),
        (refusal(trainer(|_, x| dropout(x, 0.5)), &start(24, &[])), "the module draws random numbers"),
        (
            refusal(trainer(|vb, x| vb.get(2, "spare").and(Ok(x.clone()))), &start(24, &[("spare", &[2])])),
            "no gradient for `spare`",
        ),
    ] {
        assert!(error.contains(words), "{error}");
    }
    let rows = || rows(8, 24, 3);
    let several =
        CandleTrainer::new(Ok, |vb: &VarBuilder<'static>, (rows, _)| rows.matmul(&vb.get((24, 3), "w")?), rows());
    let error = refusal(several, &model(&[("w", &[24, 3])]));
    assert!(error.contains("the loss has shape [8, 3]"), "{error}");
}

#[test]
fn failures_of_the_module_or_data_are_failed() {
    let broken = trainer(|_, x| x.reshape(5)).train(&start(24, &[]), &step());
    assert!(
        matches!(&broken, Err(TrainerError::Failed(error)) if error.to_string().contains("module failed")),
        "{broken:?}"
    );
    let none = CandleTrainer::new(Ok, |vb: &VarBuilder<'static>, _| vb.get((), "w"), rows(0, 24, 3));
    let none = { none }.train(&model(&[("w", &[])]), &step());
    assert!(matches!(&none, Err(TrainerError::Failed(error)) if error.to_string().contains("no examples")), "{none:?}");
}
