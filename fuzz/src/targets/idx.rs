//! Untrusted data set files: IDX, plain or compressed.

use std::path::Path;

/// One input: length of the images' file (two bytes), that file, then the labels' file.
pub fn run(data: &[u8]) {
    let Some((len, rest)) = data.split_first_chunk::<2>() else { return };
    let (images, labels) = rest.split_at(usize::from(u16::from_be_bytes(*len)).min(rest.len()));
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), "t10k-images-idx3-ubyte", images);
    write(folder.path(), "t10k-labels-idx1-ubyte", labels);
    if let Ok((train, test)) = datasets::idx::load_mnist(folder.path(), 1) {
        for set in [train, test] {
            assert_eq!(set.features.len(), set.labels.len() * set.width);
            assert!(set.labels.iter().all(|label| usize::try_from(*label).is_ok_and(|label| label < set.classes)));
            assert!(set.features.iter().all(|value| value.is_finite()));
        }
    }
}

fn write(folder: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(folder.join(name), bytes).expect("a file");
}

/// Four images of two by three.
pub fn seeds() -> Vec<Vec<u8>> {
    let images: Vec<u8> =
        [[0, 0, 8, 3], [0, 0, 0, 4], [0, 0, 0, 2], [0, 0, 0, 3]].concat().into_iter().chain(0..24).collect();
    let labels: Vec<u8> = [[0, 0, 8, 1], [0, 0, 0, 4], [0, 1, 9, 3]].concat();
    let joined =
        |images: &[u8], labels: &[u8]| [&u16::try_from(images.len()).unwrap().to_be_bytes(), images, labels].concat();
    vec![joined(&images, &labels)]
}
