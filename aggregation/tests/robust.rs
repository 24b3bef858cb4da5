//! Inputs rejected before they reach a device; the conformance suite checks the results of devices.

use aggregation::AggregationError;
use aggregation::robust::Inputs;

#[test]
fn what_makes_no_sense_is_refused() {
    assert!(matches!(Inputs::new(&[]), Err(AggregationError::Vectors { vectors: 0 })));
    assert!(matches!(Inputs::new(&[&[], &[]]), Err(AggregationError::Words { words: 0 })));
    let unequal = Inputs::new(&[&[1, 2], &[1]]);
    assert!(matches!(unequal, Err(AggregationError::Length { expected: 2, got: 1 })));
    let many = vec![&[0i16][..]; Inputs::MAX_VECTORS + 1];
    assert!(matches!(Inputs::new(&many), Err(AggregationError::Vectors { .. })));
    let inputs = Inputs::new(&many[1..]).unwrap();
    inputs.check_trim(2047).unwrap();
    assert!(matches!(inputs.check_trim(2048), Err(AggregationError::Trim { trim: 2048, vectors: 4096 })));
}
