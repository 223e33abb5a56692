"""Training: teachers, students, distillation, compression."""
