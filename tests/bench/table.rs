//! Prints figures as they arrive, and compares them with their goals at the end.

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Table {
    goals: Vec<(String, f64, &'static str, Goal)>,
}

/// The goal of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// At least this value.
    Least(f64),
    /// Less than this value.
    Under(f64),
}

impl Table {
    /// Prints a heading.
    pub(crate) fn heading(&self, text: &str) {
        println!("\n{text}");
    }

    /// Prints a figure.
    pub(crate) fn row(&self, what: &str, value: f64, unit: &str) {
        println!("  {what:<76} {value:>10.2} {unit}");
    }

    /// Prints column names.
    pub(crate) fn columns(&self, what: &str, names: &[impl std::fmt::Display]) {
        let names: String = names.iter().map(|name| format!("{name:>15}")).collect();
        println!("  {what:<42}{names}");
    }

    /// Prints a line of figures below their column names.
    pub(crate) fn cells(&self, what: &str, values: &[Option<f64>]) {
        let cell = |value: &Option<f64>| match value {
            Some(value) if *value >= 100.0 => format!("{value:>15.0}"),
            Some(value) => format!("{value:>15.2}"),
            None => format!("{:>15}", "-"),
        };
        println!("  {what:<42}{}", values.iter().map(cell).collect::<String>());
    }

    /// Prints a figure and records its goal.
    pub(crate) fn goal(&mut self, what: &str, value: f64, unit: &'static str, goal: Goal) {
        self.row(what, value, unit);
        self.keep(what, value, unit, goal);
    }

    /// Records the goal of a figure that was printed before.
    pub(crate) fn keep(&mut self, what: &str, value: f64, unit: &'static str, goal: Goal) {
        self.goals.push((what.to_owned(), value, unit, goal));
    }

    /// Prints every goal and whether this run met it.
    pub(crate) fn summary(&self) {
        println!("\nGoals");
        for (what, value, unit, goal) in &self.goals {
            let (met, words) = match goal {
                Goal::Least(least) => (value >= least, format!("at least {least}")),
                Goal::Under(most) => (value < most, format!("under {most}")),
            };
            println!("  {} {what:<76} {value:>10.2} {unit} ({words})", if met { "met   " } else { "MISSED" });
        }
    }
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the percentile.
pub(crate) fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(f64::NAN)
}
