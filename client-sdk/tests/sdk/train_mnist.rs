//! The ready trainer on real digits: MNIST's t10k.

use std::io::Read;
use std::path::Path;

use client_sdk::models::{Architecture, Mlp};
use client_sdk::train::{Device, Examples, Sgd, evaluate, train};
use learning::Parameters;
use task_spec::TrainingPlan;

/// The uncompressed contents after the IDX header.
fn read(path: &Path, header: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    flate2::read::GzDecoder::new(std::fs::File::open(path).unwrap()).read_to_end(&mut bytes).unwrap();
    bytes.split_off(header)
}

#[test]
fn an_mlp_reads_digits_after_three_epochs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../datasets/mnist10k");
    let images = read(&folder.join("t10k-images-idx3-ubyte.gz"), 16);
    let labels = read(&folder.join("t10k-labels-idx1-ubyte.gz"), 8);
    let features: Vec<f32> = images.iter().map(|&pixel| f32::from(pixel) / 255.0).collect();
    let labels: Vec<u32> = labels.iter().map(|&label| u32::from(label)).collect();
    let (learned, held_out) = (8_500, labels.len());
    let part = |from: usize, to: usize| Examples::Labelled {
        features: &features[from * 784..to * 784],
        labels: &labels[from..to],
        width: 784,
    };
    let model = Architecture::Mlp(Mlp::default());
    let start = model.initial(1).unwrap();
    let plan = TrainingPlan { epochs: 3, batch_size: 10, momentum: 0.5, ..TrainingPlan::default() };
    let trained = train(&model, &start, part(0, learned), Sgd { plan: &plan, seed: 0 }, &Device::Cpu).unwrap();
    let values = start.values().iter().zip(&trained.delta).map(|(start, delta)| start + delta).collect();
    let parameters = Parameters::new(start.layout().clone(), values).unwrap();
    let evaluation = evaluate(&model, &parameters, part(learned, held_out), &Device::Cpu).unwrap();
    assert!(evaluation.accuracy > 0.94, "{evaluation:?}");
}
