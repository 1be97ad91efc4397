mod bench;
mod cases;
mod orders;
mod owners;
mod sharing;
mod terms;
