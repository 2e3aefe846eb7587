//! Tables as kubectl prints them: columns of equal width, three spaces apart, and more of them where wide ones are asked for.
//!
//! Cells come from the cluster, from modules and from clients. Control characters, which a terminal would obey, are escaped.

use weir_process::one_line;

/// The longest cell, in characters, of a table that is not wide: with its other columns, 80 of a terminal.
const MAX_CELL: usize = 40;
/// The longest line beside tables, in bytes.
pub(super) const MAX_LINE: usize = 4096;

/// The heading of a column.
#[derive(Clone, Copy)]
pub(super) enum Column {
    /// In each table.
    Always(&'static str),
    /// In a wide table.
    Wide(&'static str),
}

/// Returns a table with a heading. Cells of one that is not wide are cut.
pub(super) fn table<const COLUMNS: usize>(
    columns: [Column; COLUMNS],
    rows: Vec<[String; COLUMNS]>,
    is_wide: bool,
) -> String {
    let heading = columns.map(|column| match column {
        Column::Always(name) | Column::Wide(name) => name.to_owned(),
    });
    let most = if is_wide { MAX_LINE } else { MAX_CELL };
    let rows = rows.into_iter().map(|row| row.map(|cell| cut(&one_line(&cell, MAX_LINE), most)));
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    let mut widths = [0; COLUMNS];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        let shown = columns.iter().zip(&widths).zip(row);
        for ((_, width), cell) in shown.filter(|((column, _), _)| is_wide || matches!(column, Column::Always(_))) {
            line += &format!("{cell:<width$}   ");
        }
        text += line.trim_end();
        text += "\n";
    }
    text
}

fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
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
        let text = table([Column::Always("NAME"), Column::Always("N")], rows, false);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], format!("{:<41}   N", "NAME"));
        assert_eq!(lines[1], format!("{:<41}   1", r"a\u{1b}[31mb"));
        assert!(lines[2].ends_with("…   2"), "{text}");
    }

    #[test]
    fn a_wide_table_has_more_columns_and_whole_cells() {
        let rows = || vec![["x".repeat(100), "1".to_owned()]];
        let columns = [Column::Always("NAME"), Column::Wide("N")];
        assert_eq!(table(columns, rows(), false).lines().next(), Some("NAME"));
        assert!(table(columns, rows(), true).ends_with(&format!("{}   1\n", "x".repeat(100))));
    }

    #[test]
    fn ages_sizes_and_times_are_short() {
        let ages = [0.0, 119.9, 120.0, 7200.0, 200_000.0].map(age);
        assert_eq!(ages, ["0s", "119s", "2m", "2h", "2d"]);
        assert_eq!([0.0, 1023.0, 1536.0, 52_428_800.0].map(bytes), ["0B", "1023B", "1.5Ki", "50Mi"]);
        assert_eq!([per(0.0, 0), per(0.002, 1000), per(3.0, 1000)], ["-", "2.0µs", "3.0ms"]);
    }
}
