//! NPZ files of NumPy, and files that are damaged in every way that the reader names.

use super::array::{Array, Elements};
use super::{NpzError, array, arrays};

/// Written by NumPy 2.4: `savez(x=[[0, .5, 1], [1.5, 2, 2.5]], kind=[-1, 7], mask=[[True, False]], y=0.1)`.
const STORED: &[u8] = include_bytes!("stored.npz");
/// The same by `savez_compressed`.
const DEFLATED: &[u8] = include_bytes!("deflated.npz");

/// An NPY file of the format 1.
fn npy(header: &str, elements: &[u8]) -> Vec<u8> {
    let length = u16::try_from(header.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &length[..], header.as_bytes(), elements].concat()
}

fn error(header: &str, elements: &[u8]) -> String {
    array::read("x", &npy(header, elements)).unwrap_err().to_string()
}

/// The first fixture with other bytes in place of some.
fn changed(from: &[u8], to: &[u8]) -> String {
    let at = STORED.windows(from.len()).rposition(|window| window == from).unwrap();
    let file = [&STORED[..at], to, &STORED[at + from.len()..]].concat();
    arrays(&file).unwrap_err().to_string()
}

#[test]
fn files_of_numpy_are_read() {
    let expected = [
        ("kind", Array { shape: vec![2], elements: Elements::I64(vec![-1, 7]) }),
        ("mask", Array { shape: vec![1, 2], elements: Elements::Bool(vec![true, false]) }),
        ("x", Array { shape: vec![2, 3], elements: Elements::F32(vec![0.0, 0.5, 1.0, 1.5, 2.0, 2.5]) }),
        ("y", Array { shape: vec![], elements: Elements::F64(vec![0.1]) }),
    ];
    for file in [STORED, DEFLATED] {
        let found = arrays(file).unwrap();
        assert!(found.iter().map(|(name, array)| (name.as_str(), array.clone())).eq(expected.clone()), "{found:?}");
    }
}

#[test]
fn every_integer_type_is_widened() {
    for (descr, bytes, value) in [
        ("|i1", &[0xFF][..], -1),
        ("|u1", &[0xFF], 255),
        ("<i2", &[0xFE, 0xFF], -2),
        ("<u2", &[0xFE, 0xFF], 65_534),
        ("<i4", &[0, 0, 0, 0x80], -2_147_483_648),
        ("<u4", &[0, 0, 0, 0x80], 2_147_483_648),
        ("<i8", &[0, 0, 0, 0, 1, 0, 0, 0], 1 << 32),
    ] {
        let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (1,), }}\n");
        let found = array::read("x", &npy(&header, bytes)).unwrap();
        assert_eq!(found, Array { shape: vec![1], elements: Elements::I64(vec![value]) }, "{descr}");
    }
}

#[test]
fn unusable_arrays_are_named() {
    let header = |descr: &str, fortran: &str, shape: &str| {
        format!("{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n")
    };
    for (header, why) in [
        (header("'>f4'", "False", "(2,)"), "the array `x` has the type `>f4`; float32"),
        (header("'<f2'", "False", "(2,)"), "the type `<f2`"),
        (header("'|O'", "False", "(2,)"), "the type `|O`"),
        (header("'<u8'", "False", "(2,)"), "the type `<u8`"),
        (header("[('a', '<f4'), ('b', '<f4')]", "False", "(2,)"), "the type `a record`"),
        (header("'<f4'", "True", "(1, 2)"), "the array `x` is in Fortran order"),
        (header("'<f4'", "False", "(3,)"), "has 8 bytes of elements, and its shape [3] needs another number"),
        (header("'<f4'", "False", "(1,)"), "needs another number"),
        (header("'<f4'", "False", "(4294967296, 4294967296, 0)"), "needs another number"),
        (header("'<f4'", "False", "(4294967296, 4294967296)"), "needs another number"),
        (header("'<f4'", "False", "(-2,)"), "its header is not the dictionary"),
        (header("'<f4'", "Maybe", "(2,)"), "its header is not the dictionary"),
        (header("'<f4'", "False", "(2,"), "its header is not the dictionary"),
        ("{'descr': '<f4', 'shape': (2,)}".to_owned(), "its header is not the dictionary"),
        ("{'descr': '<f4' 'shape': (2,)}".to_owned(), "its header is not the dictionary"),
        (String::new(), "its header is not the dictionary"),
    ] {
        let error = error(&header, &[0; 8]);
        assert!(error.contains(why), "{header}: {error}");
    }
    for file in [&b"\x93NUMPY"[..], b"\x93NUMPY\x01\x00\xFF\xFF{", b"\x93NUMPY\x09\x00\x02\x00{}", b"pickle"] {
        let error = array::read("x", file).unwrap_err().to_string();
        assert!(error.contains("`x` is damaged: it does not begin like an NPY file"), "{error}");
    }
}

#[test]
fn damaged_archives_are_named() {
    let last = STORED.len() - 1;
    for (file, why) in [
        (&b"no archive"[..], "its end is missing"),
        (&STORED[..last], "its end is missing"),
        (&STORED[100..], "truncated"),
    ] {
        let error = arrays(file).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    // The directory comes last: its entries are changed.
    for (from, to, why) in [
        (&b"y.npy"[..], &b"y.txt"[..], "its member `y.txt` is no array"),
        (b"y.npy", b"x.npy", "it holds the array `x` twice"),
        (b"PK\x01\x02", b"PK\x01\x03", "its directory is truncated"),
    ] {
        let error = changed(from, to);
        assert!(error.contains(why), "{error}");
    }
    let mut flipped = STORED.to_vec();
    let at = STORED.windows(6).position(|window| window == b"\x93NUMPY").unwrap();
    flipped[at + 130] ^= 1;
    assert!(arrays(&flipped).unwrap_err().to_string().contains("its checksum is wrong"));
}

#[test]
fn announced_sizes_are_bounded() {
    let entry = STORED.windows(4).position(|window| window == b"PK\x01\x02").unwrap();
    let end = STORED.len() - 22;
    let with = |at: usize, bytes: &[u8]| {
        let mut file = STORED.to_vec();
        file[at..at + bytes.len()].copy_from_slice(bytes);
        arrays(&file).unwrap_err()
    };
    assert!(matches!(with(entry + 24, &[0xFF; 4]), NpzError::Large), "a member of ZIP64");
    assert!(matches!(with(end + 10, &[0xFF; 2]), NpzError::Many(65_535)));
    assert!(with(entry + 24, &[1, 0, 0, 0]).to_string().contains("its length is not that of the directory"));
    assert!(with(entry + 20, &[0xFF, 0xFF, 0, 0]).to_string().contains("is truncated"));
    assert!(with(entry + 8, &[1, 0]).to_string().contains("is encrypted"));
    assert!(with(entry + 10, &[8, 0]).to_string().contains("is damaged"), "stored bytes do not decompress");
    assert!(with(entry + 10, &[12, 0]).to_string().contains("its compression is neither none nor deflate"));
}

#[test]
fn changed_bytes_never_panic() {
    let mut rejected = 0;
    for file in [STORED, DEFLATED] {
        for at in 0..file.len() {
            let mut bytes = file.to_vec();
            bytes[at] ^= 0x55;
            rejected += usize::from(arrays(&bytes).is_err());
            assert!(arrays(&file[..at]).is_err(), "{at}");
        }
    }
    assert!(rejected > 1000, "{rejected}");
    // Without the archive's checksum.
    let file = npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }\n", &[0; 8]);
    let changed = (0..file.len()).flat_map(|at| (0..8).map(move |bit| (at, 1 << bit)));
    let errors = changed.filter(|(at, mask)| {
        let mut bytes = file.clone();
        bytes[*at] ^= mask;
        array::read("x", &bytes).is_err()
    });
    assert!(errors.count() > 300);
}
