"""The examiner: recipes, plants, the matrix of rows, the score, the calibration."""
