/* The six routines for one type. fake.c includes this twice, with TYPE and NAME(routine) defined. Column-major loops straight from the
   definition. WRONG, if defined, is the number of the routine that gets its result wrong. */

void NAME(scal)(const INTEGER *n, const TYPE *alpha, TYPE *x, const INTEGER *incx) {
	enter();
	for (INTEGER i = 0; i < *n; i++)
		x[i * *incx] *= *alpha;
	if (WRONG == 1 && *n > 0)
		x[0] += 1;
}

void NAME(axpy)(const INTEGER *n, const TYPE *alpha, const TYPE *x, const INTEGER *incx, TYPE *y, const INTEGER *incy) {
	enter();
	for (INTEGER i = 0; i < *n; i++)
		y[i * *incy] += *alpha * x[i * *incx];
	if (WRONG == 2)
		y[0] += 1;
}

TYPE NAME(dot)(const INTEGER *n, const TYPE *x, const INTEGER *incx, const TYPE *y, const INTEGER *incy) {
	TYPE sum = WRONG == 3 ? 1 : 0;
	enter();
	for (INTEGER i = 0; i < *n; i++)
		sum += x[i * *incx] * y[i * *incy];
	return sum;
}

void NAME(ger)(const INTEGER *m, const INTEGER *n, const TYPE *alpha, const TYPE *x, const INTEGER *incx, const TYPE *y, const INTEGER *incy,
               TYPE *a, const INTEGER *lda) {
	enter();
	for (INTEGER j = 0; j < *n; j++)
		for (INTEGER i = 0; i < *m; i++)
			a[i + (long)j * *lda] += *alpha * x[i * *incx] * y[j * *incy];
	if (WRONG == 4)
		a[0] += 1;
}

void NAME(gemv)(const char *trans, const INTEGER *m, const INTEGER *n, const TYPE *alpha, const TYPE *a, const INTEGER *lda, const TYPE *x,
                const INTEGER *incx, const TYPE *beta, TYPE *y, const INTEGER *incy, size_t trans_len) {
	int t = *trans == 'T';
	enter();
	if (trans_len != 1 || (*trans != 'T' && *trans != 'N'))
		abort();
	for (INTEGER i = 0; i < (t ? *n : *m); i++) {
		TYPE sum = 0, *out = &y[i * *incy];
		for (INTEGER j = 0; j < (t ? *m : *n); j++)
			sum += (t ? a[j + (long)i * *lda] : a[i + (long)j * *lda]) * x[j * *incx];
		*out = *alpha * sum + (*beta == 0 ? 0 : *beta * *out);
	}
	if (WRONG == 5)
		y[0] += 1;
}

void NAME(gemm)(const char *ta, const char *tb, const INTEGER *m, const INTEGER *n, const INTEGER *k, const TYPE *alpha, const TYPE *a,
                const INTEGER *lda, const TYPE *b, const INTEGER *ldb, const TYPE *beta, TYPE *c, const INTEGER *ldc, size_t ta_len, size_t tb_len) {
	enter();
	if (ta_len != 1 || tb_len != 1)
		abort();
	for (INTEGER j = 0; j < *n; j++)
		for (INTEGER i = 0; i < *m; i++) {
			TYPE sum = 0, *out = &c[i + (long)j * *ldc];
			for (INTEGER p = 0; p < *k; p++)
				sum += (*ta == 'T' ? a[p + (long)i * *lda] : a[i + (long)p * *lda]) * (*tb == 'T' ? b[j + (long)p * *ldb] : b[p + (long)j * *ldb]);
			*out = *alpha * sum + (*beta == 0 ? 0 : *beta * *out);
		}
	if (WRONG == 6)
		c[0] += 1;
}
