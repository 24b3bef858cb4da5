//! Many broken files: every problem is named with its place, and no row is lost in silence.

use super::*;

const ROWS: usize = 6;

/// The lines of a good file.
fn lines() -> Vec<Vec<u8>> {
    let row = |row: usize| format!("{row},no,{},icu", 10 * row).into_bytes();
    std::iter::once(b"id,sick,age,ward".to_vec()).chain((1..=ROWS).map(row)).collect()
}

/// Where a problem is, and the column that it names.
type Named = (Option<Place>, Option<String>);

/// Places of the problems of a file, and its numbers of rows that are used and left out.
fn problems(lines: &[Vec<u8>]) -> (Vec<Named>, usize, usize) {
    let mut bytes = lines.join(&b'\n');
    bytes.push(b'\n');
    let (fitted, report) = inspected(&bytes).fit(&wanted(&spec(SPEC)));
    assert_eq!((fitted.rows(), report.problems.len()), (report.used, report.count));
    let places = report.problems.iter().map(TableError::place);
    (places.map(|(place, column)| (place, column.map(str::to_owned))).collect(), report.used, report.skipped)
}

/// Ways to break a line, and the column that is named, if the line still is a row.
fn breaks() -> Vec<(Vec<u8>, Option<&'static str>)> {
    let ages = [
        "",
        " ",
        "NaN",
        "NA",
        "\"1,5\"",
        "abc",
        "1e999",
        "-1",
        "101",
        "0x10",
        "1 000",
        "−5",
        "inf",
        "12%",
        "1980-01-01",
    ];
    let wards = ["", "ICU", "icu2", "\"icu\ngeneral\"", "0"];
    let sick = ["", "maybe", "No", "1"];
    let cell = |text: &str, column: &'static str, line: &str| (line.replace('*', text).into_bytes(), Some(column));
    let mut all: Vec<_> = ages.iter().map(|text| cell(text, "age", "9,no,*,icu")).collect();
    all.extend(wards.iter().map(|text| cell(text, "ward", "9,no,50,*")));
    all.extend(sick.iter().map(|text| cell(text, "sick", "9,*,50,icu")));
    all.push((b"9,no,\xff,icu".to_vec(), Some("age")));
    all.push((b"9,n\xe9,50,icu".to_vec(), Some("sick")));
    all.extend(["9", "9,no", "9,no,50", "9,no,50,icu,x,y", "9;no;50;icu"].map(|line| (line.into(), None)));
    all
}

#[test]
fn each_broken_line_is_named_alone_and_with_others() {
    let mut files = 0;
    for (broken, column) in breaks() {
        for at in 1..=ROWS {
            let mut lines = lines();
            lines[at].clone_from(&broken);
            let line = Place::Line(at as u64 + 1);
            let expected = vec![(Some(line), column.map(str::to_owned))];
            assert_eq!(problems(&lines), (expected, ROWS - 1, 1), "{:?} at {at}", String::from_utf8_lossy(&broken));
            files += 1;
        }
    }
    assert!(files > 60, "{files}");
    let all: Vec<_> = std::iter::once(lines()[0].clone()).chain(breaks().into_iter().map(|(line, _)| line)).collect();
    let (places, used, skipped) = problems(&all);
    let columns: Vec<_> = places.into_iter().map(|(_, column)| column).collect();
    let expected: Vec<_> = breaks().into_iter().map(|(_, column)| column.map(str::to_owned)).collect();
    assert_eq!((columns, used, skipped), (expected, 0, all.len() - 1));
}

#[test]
fn every_row_of_a_changed_file_is_counted_or_named() {
    let (text, mut state) = (lines().join(&b'\n'), 1_u32);
    let mut next = |most: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % most
    };
    for _ in 0..2000 {
        let mut bytes = text.clone();
        for _ in 0..=next(3) {
            let at = next(bytes.len());
            match next(3) {
                0 => bytes[at] = b"\",\n;\r\0x1\xff"[next(9)],
                1 => drop(bytes.remove(at)),
                _ => bytes.insert(at, b"\",\n \r\0y7\xc3"[next(9)]),
            }
        }
        let wanted = wanted(&spec(SPEC));
        let Ok((_, report)) = inspected(&bytes).source.fit(&wanted, Keep::Nothing) else { continue };
        assert!(report.used == report.rows || report.count > 0, "{report:?}");
        assert!(report.used + report.skipped <= report.rows, "{report:?}");
        // Every row that is left out is named, or the column that all of them lack.
        let lacks_a_column = report.problems.iter().any(|problem| matches!(problem, TableError::Missing { .. }));
        assert!(lacks_a_column || report.skipped <= report.count, "{report:?}");
    }
}
