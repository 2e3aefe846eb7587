//! Tables as kubectl prints them: columns of equal width, three spaces apart.
//!
//! Cells come from the cluster, from modules and from clients. Control characters, which a terminal would obey, are escaped.

use weir_process::one_line;

/// The longest cell, in characters.
const MAX_CELL: usize = 60;
/// The longest line beside tables, in bytes.
pub(super) const MAX_LINE: usize = 4096;

/// Returns a table with a heading.
pub(super) fn table<const COLUMNS: usize>(heading: [&str; COLUMNS], rows: Vec<[String; COLUMNS]>) -> String {
    let rows = rows.into_iter().map(|row| row.map(|cell| cut(&one_line(&cell, MAX_LINE))));
    let rows: Vec<_> = std::iter::once(heading.map(str::to_owned)).chain(rows).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            line += &format!("{cell:<width$}   ");
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_CELL) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// A duration as kubectl prints an age.
pub(super) fn age(seconds: f64) -> String {
    match seconds.max(0.0) as u64 {
        seconds @ 0..=119 => format!("{seconds}s"),
        seconds @ 120..=7199 => format!("{}m", seconds / 60),
        seconds @ 7200..=172_799 => format!("{}h", seconds / 3600),
        seconds => format!("{}d", seconds / 86400),
    }
}

/// A number of bytes.
pub(super) fn bytes(bytes: f64) -> String {
    scaled(bytes, 1024.0, &["B", "Ki", "Mi", "Gi"])
}

/// The time for one of so many.
pub(super) fn per(seconds: f64, count: u64) -> String {
    match count {
        0 => "-".to_owned(),
        count => scaled(seconds * 1e9 / count as f64, 1000.0, &["ns", "µs", "ms", "s"]),
    }
}

fn scaled(mut value: f64, step: f64, units: &[&str]) -> String {
    let mut unit = 0;
    while value >= step && unit + 1 < units.len() {
        value /= step;
        unit += 1;
    }
    let decimals = usize::from(value < 10.0 && unit > 0);
    format!("{value:.decimals$}{}", units.get(unit).copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cells_cannot_control_the_terminal() {
        let rows = vec![["a\u{1b}[31mb".to_owned(), "1".to_owned()], ["long".repeat(30), "2".to_owned()]];
        let text = table(["NAME", "N"], rows);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], format!("{:<61}   N", "NAME"));
        assert_eq!(lines[1], format!("{:<61}   1", r"a\u{1b}[31mb"));
        assert!(lines[2].ends_with("…   2"), "{text}");
    }

    #[test]
    fn ages_sizes_and_times_are_short() {
        let ages = [0.0, 119.9, 120.0, 7200.0, 200_000.0].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "2h", "2d"]);
        assert_eq!([0.0, 1023.0, 1536.0, 52_428_800.0].map(bytes), ["0B", "1023B", "1.5Ki", "50Mi"]);
        assert_eq!([per(0.0, 0), per(0.002, 1000), per(3.0, 1000)], ["-", "2.0µs", "3.0ms"]);
    }
}
