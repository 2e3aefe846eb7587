//! The figures, printed as they come, and against their goals at the end.

/// All figures of a run.
#[derive(Default)]
pub(crate) struct Table {
    goals: Vec<(String, f64, &'static str, Goal)>,
}

/// What a figure must reach.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    /// At least this much.
    Least(f64),
    /// Less than this.
    Under(f64),
}

impl Table {
    /// A heading.
    pub(crate) fn heading(&self, text: &str) {
        println!("\n{text}");
    }

    /// A figure.
    pub(crate) fn row(&self, what: &str, value: f64, unit: &str) {
        println!("  {what:<76} {value:>10.2} {unit}");
    }

    /// The names of columns.
    pub(crate) fn columns(&self, what: &str, names: &[impl std::fmt::Display]) {
        let names: String = names.iter().map(|name| format!("{name:>15}")).collect();
        println!("  {what:<42}{names}");
    }

    /// A line of figures under the names of their columns.
    pub(crate) fn cells(&self, what: &str, values: &[Option<f64>]) {
        let cell = |value: &Option<f64>| match value {
            Some(value) if *value >= 100.0 => format!("{value:>15.0}"),
            Some(value) => format!("{value:>15.2}"),
            None => format!("{:>15}", "-"),
        };
        println!("  {what:<42}{}", values.iter().map(cell).collect::<String>());
    }

    /// A figure with a goal.
    pub(crate) fn goal(&mut self, what: &str, value: f64, unit: &'static str, goal: Goal) {
        self.row(what, value, unit);
        self.keep(what, value, unit, goal);
    }

    /// A figure with a goal that was shown among others.
    pub(crate) fn keep(&mut self, what: &str, value: f64, unit: &'static str, goal: Goal) {
        self.goals.push((what.to_owned(), value, unit, goal));
    }

    /// Every goal and whether this run met it.
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

/// The middle of some figures.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The value below which this part of the figures lies.
pub(crate) fn percentile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 * part) as usize).min(values.len().saturating_sub(1));
    values.get(at).copied().unwrap_or(f64::NAN)
}
