//! Models as files from anywhere. What is read is written to the same values, and read once more.

use std::sync::Arc;

use learning::checkpoint::{read, read_layout, write};
use learning::parameters::{Layout, Parameters, TensorSpec};

fn known() -> Arc<Layout> {
    let tensor = |name: &str, shape: &[u64]| TensorSpec { name: name.into(), shape: shape.to_vec() };
    Arc::new(Layout::new(vec![tensor("fc1.weight", &[3, 2]), tensor("fc1.bias", &[3]), tensor("scale", &[])]).unwrap())
}

/// One input.
pub fn run(data: &[u8]) {
    let expected = known();
    if let Ok(parameters) = read(data, &expected) {
        assert!(parameters.values().iter().all(|value| value.is_finite()));
        let written = write(&parameters).expect("finite values can be written");
        assert_eq!(read(&written, &expected).unwrap().values(), parameters.values());
    }
    if let Ok(layout) = read_layout(data) {
        // A file that says what it holds is at least as long as that.
        assert!(layout.len() <= data.len());
        drop(read(data, &Arc::new(layout)));
    }
}

/// A model of the known layout, and one of another.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut parameters = Parameters::zeros(known());
    for (value, number) in parameters.values_mut().iter_mut().zip(1u8..) {
        *value = f32::from(number) / 4.0;
    }
    let one = TensorSpec { name: "a".into(), shape: vec![1] };
    let other = Parameters::zeros(Arc::new(Layout::new(vec![one]).unwrap()));
    vec![write(&parameters).unwrap(), write(&other).unwrap()]
}
